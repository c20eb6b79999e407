"""Profiles checked against the stored results."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

from sqlalchemy import text

from sam_pipeline.spark_jobs.commands.profile import check
from sam_pipeline.spark_jobs.inputs.observed import Observed, never_seen, newest_day, observe
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.loading.fold import take_changes
from tests.support.reports.database import DAY, Grid, profile

WEEK = Period(DAY - timedelta(days=6), DAY)
HOURLY = [f"{hour:02}:05" for hour in range(24)]
TARGETS = """
[targets.groups.federation.NORHT]
availability = 90
[targets.groups.federation.NORTH]
availability = 90
[targets.sites.SITE-B]
availability = 90
[targets.sites.SITE-A]
availability = 90
"""


def measure(
    grid: Grid, instance: str, times: Sequence[str], vo: str = "ops", day: date = DAY
) -> None:
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


def test_metrics_are_observed_with_their_p99_interval(grid: Grid, tmp_path: Path) -> None:
    grid.endpoint("SITE-A", "CE", "ce01.example.org")
    measure(grid, "CE ce01.example.org ping", HOURLY)
    measure(grid, "CE ce02.example.org ping", ["00:00", "00:01"])  # in no topology
    submit = "CE ce01.example.org submit"
    measure(grid, submit, ["00:00", "09:00", "21:00"])
    measure(grid, submit, ["02:00"], day=DAY - timedelta(days=6))
    measure(grid, submit, ["09:30"], vo="other")

    with reading(grid.reporter) as connection:
        assert newest_day(connection, DAY) == DAY
        observed = observe(connection, profile(tmp_path, ('"off"', "7200")), WEEK, DAY)

    assert observed == [
        Observed("ping", 2, 1, 23, 3600, 7200),
        Observed("submit", 1, 1, 3, 6 * 86_400 - 7200, 7200),
        Observed("put", 0, 0, 0, None, 7200),
    ]
    assert observed[0].proposed_validity_s == 10_800


def test_suspicious_settings_give_warnings(grid: Grid, tmp_path: Path) -> None:
    grid.endpoint("SITE-A", "CE", "ce01.example.org")
    grid.group("SITE-A", "NORTH")
    measure(grid, "CE ce01.example.org ping", HOURLY)
    measure(grid, "CE ce01.example.org submit", ["02:00"], day=DAY - timedelta(days=7))
    measure(grid, "SRM ce01.example.org ping", ["02:00"])
    patterns = 'sites = ["SITE-?", "T1_*"]\ngroups = ["*/NORTH", "tier/1"]'
    odd = profile(tmp_path, ('"off"', f"3599\n{patterns}"), ('["SRM"]', f'["CE"]{TARGETS}'))
    of_no_vo = profile(tmp_path, ('"ops"', '"xyz"'))

    with reading(grid.reporter) as connection:
        warnings = check(connection, odd, DAY).warnings
        older = check(connection, odd, DAY, DAY - timedelta(days=7))
        assert never_seen(connection, odd) == ["put of SRM"]
    grid.endpoint("SITE-A", "SRM", "se01.example.org", voName="atlas")
    with reading(grid.reporter) as connection:
        of_vo = check(connection, of_no_vo, DAY, DAY).warnings

    for subject, *facts in (
        ("flavour SRM ", "function"),
        ("flavour SRM ", f"topology of {DAY}"),
        ("put of SRM ", "never"),
        ("ping: ", "3599 s", "3600 s"),
        ("submit ", str(WEEK)),
        ("targets ", "federation NORHT", "did you mean federation NORTH"),
        ("targets ", "site SITE-B", "SITE-A"),
        ("sites: ", "T1_*", f"topology of {DAY}"),
        ("groups: ", "tier/1", f"topology of {DAY}"),
    ):
        [_] = [w for w in warnings if w.startswith(subject) and all(fact in w for fact in facts)]
    assert len(warnings) == 9
    assert older.period == Period(DAY - timedelta(days=7), DAY)
    assert not any(warning.startswith("submit ") for warning in older.warnings)
    [named] = [warning for warning in of_vo if "VO xyz: " in warning]
    assert named.endswith("there are atlas, ops")
    assert any(warning.startswith("flavour SRM has no endpoint for VO xyz") for warning in of_vo)
