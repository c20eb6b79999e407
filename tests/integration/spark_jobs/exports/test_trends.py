"""`sam-report trends` lists the most frequent changes first, to a reader, on both databases."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.spark_jobs.cli import main
from sam_pipeline.spark_jobs.rules.days import day_start
from tests.services.postgres import as_role
from tests.support.reports.database import DAY, profile
from tests.support.reports.published_days import publish

NEXT = DAY + timedelta(days=1)
BOTH = ("--from", f"{DAY}", "--to", f"{NEXT}")
Run = Callable[..., tuple[str, str]]


@pytest.fixture
def run(engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command for a database with two published days; it returns stdout and stderr."""
    url = f"sqlite:///{tmp_path}/sam.db"
    if engine.dialect.name == "postgresql":
        url = as_role(engine.url.render_as_string(hide_password=False), "reader")
    config = tmp_path / "sam.toml"
    config.write_text(f'[database]\nurl = "{url}"\n')
    config.chmod(0o600)
    report = profile(tmp_path)
    publish(
        engine,
        report,
        DAY,
        {
            "A CE h1": {"00:00": "OK", "06:00": "CRITICAL", "07:00": "OK"},
            "A SRM h2": {"00:00": "OK"},
            "B CE h3": {"00:00": "MISSING", "09:00": "OK"},
            "C CE h4": {"00:00": "CRITICAL"},
        },
    )
    publish(
        engine,
        report,
        NEXT,
        {
            "A CE h1": {"00:00": "OK"},
            "B CE h3": {"00:00": "OK", "01:00": "WARNING", "02:00": "OK", "23:30": "CRITICAL"},
            "C CE h4": {"00:00": "OK"},
        },
        until=day_start(NEXT) + 86_399,
    )

    def run(*arguments: str) -> tuple[str, str]:
        assert main(["trends", *arguments, "--config", str(config)]) == 0
        captured = capsys.readouterr()
        return captured.out, captured.err

    return run


def test_changes_of_several_days_add_up_and_midnight_is_not_a_change(run: Run) -> None:
    first, second = json.loads(run("--json", *BOTH)[0])

    assert first == {
        "report": "test",
        "first_day": f"{DAY}",
        "last_day": f"{NEXT}",
        "level": "site",
        "site": "B",
        "changes": 4,
        "first_change": f"{DAY}T09:00:00Z",
        "last_change": f"{NEXT}T23:30:00Z",
        "days": 2,
        "ok_s": 15 * 3600 + 3600 + 21 * 3600 + 1800,
        "warning_s": 3600,
        "critical_s": 1799,
        "unknown_s": 0,
        "missing_s": 9 * 3600,
        "downtime_s": 0,
        "excluded_s": 0,
    }
    assert (second["site"], second["changes"]) == ("A", 2)


@pytest.mark.parametrize(
    ("level", "names"),
    [
        ("metric", {"service_flavour": "CE", "host_name": "h1", "metric_name": "ping"}),
        ("endpoint", {"service_flavour": "CE", "host_name": "h1"}),
        ("service", {"service_flavour": "CE"}),
        ("function", {"function": "ce"}),
        ("site", {}),
    ],
)
def test_every_level_has_its_names(run: Run, level: str, names: dict[str, str]) -> None:
    [first, _] = json.loads(run("--format", "json", "--level", level, "--day", f"{DAY}")[0])

    assert {"site": "A", "changes": 2, **names}.items() <= first.items()
    times = {"first_change": f"{DAY}T06:00:00Z", "last_change": f"{DAY}T07:00:00Z"}
    assert times.items() <= first.items()


def test_the_table_has_the_statuses_that_occur_and_counts_all_rows(run: Run) -> None:
    out, _ = run("--level", "endpoint", *BOTH, "--top", "1")

    lines = out.splitlines()
    assert lines[0].startswith(f"test, {DAY} to {NEXT}")
    assert f"until {NEXT}T23:59:59Z" in lines[0]
    assert lines[2].split() == [
        *("site", "service_flavour", "host_name", "changes", "first_change", "last_change"),
        *("ok_s", "warning_s", "critical_s", "missing_s"),
    ]
    assert lines[4].split()[:4] == ["B", "CE", "h3", "4"]
    assert lines[-1].startswith("2 of 4 endpoints changed")
    assert lines[-1].endswith(" 1")


def test_the_trends_of_one_site_are_listed_alone(run: Run) -> None:
    out, _ = run("--level", "endpoint", "--site", "A", *BOTH)

    assert [line.split()[:3] for line in out.splitlines()[4:5]] == [["A", "CE", "h1"]]
    assert out.splitlines()[-1].startswith("1 of 2 endpoints")


def test_csv_has_a_header_and_the_same_rows(run: Run) -> None:
    out, _ = run("--format", "csv", *BOTH)

    header, first, second = out.splitlines()
    assert header.startswith("report,first_day,last_day,level,site,changes,first_change")
    assert first.startswith(f"test,{DAY},{NEXT},site,B,4,{DAY}T09:00:00Z,{NEXT}T23:30:00Z,2,")
    assert second.split(",")[4] == "A"


def test_a_period_without_changes_or_published_days_is_reported_as_such(
    run: Run, engine: Engine, tmp_path: Path
) -> None:
    publish(engine, profile(tmp_path), DAY, {"A CE h1": {"00:00": "OK"}})

    assert "0 of 1 site" in run("--day", f"{DAY}")[0]
    out, err = run("--day", "2026-11-01")
    assert out == ""
    assert "nothing is published for 2026-11-01" in err
