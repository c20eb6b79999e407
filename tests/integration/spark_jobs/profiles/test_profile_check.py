"""A profile is checked against the stored results, on either database."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from sam_pipeline.spark_jobs.cli import main
from sam_pipeline.spark_jobs.commands.profile import check
from sam_pipeline.spark_jobs.inputs.observed import Observed, never_seen, newest_days, observe
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.loading.fold import take_changes
from tests.support.reports.database import DAY, Grid, profile

WEEK = Period(DAY - timedelta(days=6), DAY)


@pytest.fixture(params=["sqlite", "postgresql"])
def grid(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Grid]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        grid = Grid(f"sqlite:///{tmp_path}/sam.db")
    else:
        grid = Grid(request.getfixturevalue("postgres_url"))
    yield grid
    grid.dispose()


def measure(grid: Grid, instance: str, *times: str, vo: str = "ops", day: date = DAY) -> None:
    flavour, host, metric = instance.split()
    rows = [
        {"host": host, "flavour": flavour, "metric": metric, "at": f"{day}T{time}:00Z", "vo": vo}
        for time in times
    ]
    with writing(grid.loader) as connection:
        connection.execute(
            text(
                "INSERT INTO metricOutput (hostName, serviceFlavour, metricName, metricStatus,"
                " timestamp, voName) VALUES (:host, :flavour, :metric, 'OK', :at, :vo)"
            ),
            rows,
        )
    with writing(grid.reporter) as connection:
        take_changes(connection)


def hourly(minute: int = 0) -> list[str]:
    return [f"{hour:02}:{minute:02}" for hour in range(24)]


def test_metrics_are_observed_with_their_p99_interval(grid: Grid, tmp_path: Path) -> None:
    grid.endpoint("SITE-A", "CE", "ce01.example.org")
    measure(grid, "CE ce01.example.org ping", *hourly())
    measure(grid, "CE ce02.example.org ping", "00:00", "00:01")  # in no topology
    measure(grid, "CE ce01.example.org submit", "00:00", "09:00", "21:00")
    measure(grid, "CE ce01.example.org submit", "02:00", day=DAY - timedelta(days=6))
    measure(grid, "CE ce01.example.org submit", "02:00", day=DAY - timedelta(days=7))
    measure(grid, "CE ce01.example.org submit", "09:30", vo="other")
    checked_profile = profile(tmp_path, ('"off"', "7200"))

    with reading(grid.reporter) as connection:
        assert newest_days(connection, 7, DAY) == WEEK
        observed = observe(connection, checked_profile, WEEK, DAY)

    assert observed == [
        Observed("ping", 2, 1, 23, 3600, 7200),
        Observed("submit", 1, 1, 3, 6 * 86_400 - 7200, 7200),
        Observed("put", 0, 0, 0, None, 7200),
    ]
    assert observed[0].proposed_validity_s == 10_800


def test_suspicious_settings_give_warnings(grid: Grid, tmp_path: Path) -> None:
    grid.endpoint("SITE-A", "CE", "ce01.example.org")
    measure(grid, "CE ce01.example.org ping", *hourly())
    measure(grid, "CE ce01.example.org submit", "02:00", day=DAY - timedelta(days=7))
    measure(grid, "SRM ce01.example.org ping", "02:00")
    odd_profile = profile(tmp_path, ('"off"', "3599"), ('["SRM"]', '["CE"]'))

    with reading(grid.reporter) as connection:
        checked = check(connection, odd_profile, 7, DAY)
        assert never_seen(connection, odd_profile) == ["put of SRM"]

    expected = [
        ("flavour SRM ", "function"),
        ("flavour SRM ", f"topology of {DAY}"),
        ("put of SRM ", "never"),
        ("ping: ", "3599 s", "3600 s"),
        ("submit ", str(WEEK)),
    ]
    for warning, (subject, *facts) in zip(checked.warnings, expected, strict=True):
        assert warning.startswith(subject)
        assert all(fact in warning for fact in facts)


def test_a_mistyped_vo_is_named_with_those_there_are(grid: Grid, tmp_path: Path) -> None:
    measure(grid, "CE ce01.example.org ping", *hourly(5))
    grid.endpoint("A", "SRM", "se01.example.org", voName="atlas")
    wrong, right = (profile(tmp_path, ('"ops"', f'"{vo}"')) for vo in ("xyz", "ops"))

    with reading(grid.reporter) as connection:
        warnings, others = (check(connection, p, 1, DAY).warnings for p in (wrong, right))

    [of_vo] = [warning for warning in warnings if "VO xyz: " in warning]
    assert of_vo.endswith("there are atlas, ops")
    assert any(warning.startswith("flavour SRM has no endpoint for VO xyz") for warning in warnings)
    assert not any("there are" in warning for warning in others)


def test_targets_of_unknown_groups_and_sites_are_named(grid: Grid, tmp_path: Path) -> None:
    grid.endpoint("SITE-A", "CE", "ce01.example.org")
    grid.group("SITE-A", "NORTH")
    targets = """
[targets.groups.federation.NORHT]
availability = 90
[targets.groups.federation.NORTH]
availability = 90
[targets.sites.SITE-B]
availability = 90
[targets.sites.SITE-A]
availability = 90
"""
    checked = profile(tmp_path, ('flavours = ["SRM"]', f'flavours = ["SRM"]{targets}'))

    with reading(grid.reporter) as connection:
        warnings = check(connection, checked, 1, DAY).warnings

    named = [warning for warning in warnings if warning.startswith("targets")]
    assert [warning.partition(": ")[0].split()[-2:] for warning in named] == [
        ["federation", "NORHT"],
        ["site", "SITE-B"],
    ]
    assert "did you mean federation NORTH" in named[0] and "SITE-A" in named[1]


def test_without_results_a_profile_has_no_days_to_check(grid: Grid, tmp_path: Path) -> None:
    grid.downtime("10:00", "11:00", siteName="SITE-A")  # this marks its day as changed

    with reading(grid.reporter) as connection:
        assert newest_days(connection, 7, DAY) is None
        assert check(connection, profile(tmp_path), 7, DAY).metrics == []
        assert never_seen(connection, profile(tmp_path)) == [
            "ping of CE",
            "submit of CE",
            "put of SRM",
        ]


def test_the_command_lists_every_metric(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = Grid(f"sqlite:///{tmp_path}/sam.db")
    for host in ("ce01.example.org", "ce02.example.org"):
        measure(grid, f"CE {host} ping", *hourly(5))
    grid.dispose()
    profile(tmp_path)
    (tmp_path / "sam.toml").write_text('[database]\nurl = "sqlite:///sam.db"\n')
    monkeypatch.setenv("SAM_CONFIG", str(tmp_path / "sam.toml"))

    assert main(["profile", "check", str(tmp_path / "profile.toml"), "--days", "1"]) == 0
    out = capsys.readouterr().out
    assert main(["profile", "check", str(tmp_path / "profile.toml"), "--json"]) == 0
    [document] = json.loads(capsys.readouterr().out)

    summary, *lines = out.splitlines()
    # What the profile counts is indented.
    title, header, _, ping, *_ = (line for line in lines if not line.startswith("  "))
    assert summary.startswith(f"{tmp_path}/profile.toml: OK, report test: ")
    assert re.findall(r"\d+ \w+", summary.rpartition(": ")[2]) == [
        "2 flavours",
        "3 metrics",
        "2 functions",
    ]
    assert f"{DAY}" in title and "50 instances" in title
    assert header.split()[:2] == ["metric", "instances"]
    assert ping.split() == ["ping", "2", "2", "46", "3600", "off", "10800"]
    assert lines[0].split() == ["Up", "when", "CE", "and", "SRM"]
    assert document["counts"][0] == {"what": "Up when", "text": "CE and SRM"}
    assert "warning: put of SRM" in out
    assert document["observed"][0] == {
        "metric_name": "ping",
        "instances": 2,
        "instances_asked": 2,
        "intervals": 46,
        "p99_interval_s": 3600,
        "validity_s": None,
        "proposed_validity_s": 10800,
    }
    assert (document["first_day"], document["last_day"]) == (str(WEEK.first), str(WEEK.last))
