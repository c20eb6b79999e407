"""`sam-report incidents` shows readers what failed, how long and why, on both databases."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.program.command import USAGE
from sam_pipeline.spark_jobs.cli import main
from sam_pipeline.spark_jobs.explain.incidents.shared_causes import LOOK_AT
from sam_pipeline.spark_jobs.rules.groups import Member
from tests.services.postgres import as_role
from tests.support.reports.database import Grid, profile
from tests.support.reports.published_days import publish

FIRST, LAST = date(2026, 10, 31), date(2026, 11, 1)
BOTH = ("--from", f"{FIRST}", "--to", f"{LAST}")
# Published days name a function after its flavour.
FUNCTIONS = [("functions.compute", "functions.ce"), ("functions.storage", "functions.srm")]
FINE = {"00:00": "OK"}
LEVELS = ("site", "group", "report")
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command for a database with two published days; it returns exit code and output."""
    owner = f"sqlite:///{tmp_path}/sam.db"
    if engine.dialect.name == "postgresql":
        owner = engine.url.render_as_string(hide_password=False)
    config = tmp_path / "sam.toml"
    config.write_text(f'[database]\nurl = "{as_role(owner, "reader")}"\n')
    config.chmod(0o600)
    report = profile(tmp_path, *FUNCTIONS)
    members = [Member("region", "north", "A", 0), Member("region", "south", "C", 0)]
    evening = {
        "A CE h1": {"00:00": "OK", "22:00": "CRITICAL"},
        "B CE h2": {"00:00": "OK", "23:00": "CRITICAL", "23:30": "OK"},
        "C CE h3": FINE,
    }
    morning = {
        "A CE h1": {"00:00": "CRITICAL", "02:00": "OK"},
        "B CE h2": FINE,
        "C CE h3": {"00:00": "OK", "06:00": "CRITICAL"},
    }
    publish(engine, report, FIRST, evening, members)
    publish(engine, report, LAST, morning, members)
    grid = Grid(owner)
    for host, time, day in (("h1", "22:00", FIRST), ("h2", "23:00", FIRST), ("h3", "06:00", LAST)):
        text = f"no route to {host}.example.org (try {len(time)})"
        grid.result(f"CE {host} ping", time, "CRITICAL", day=day, summaryData=text)
    grid.dispose()

    def run(*arguments: str) -> tuple[int, str]:
        code = main(["incidents", *arguments, "--config", str(config)])
        captured = capsys.readouterr()
        return code, captured.out or captured.err

    return run


def test_an_incident_over_the_end_of_a_month_is_one(run: Run) -> None:
    code, output = run("--json", "--site", "A", *BOTH)

    [incident] = json.loads(output)
    assert code == 0
    assert (incident["start"], incident["end"]) == (f"{FIRST}T22:00:00Z", f"{LAST}T02:00:00Z")
    assert (incident["duration_s"], incident["open"]) == (4 * 3600, False)
    assert (incident["metric_name"], incident["endpoints"]) == ("ping", "h1")
    assert incident["example"].startswith("no route to h1")


def test_a_month_shows_what_of_an_incident_lies_in_it(run: Run) -> None:
    october = json.loads(run("--json", "--site", "A", "--month", "2026-10")[1])
    november = json.loads(run("--json", "--site", "A", "--day", f"{LAST}")[1])

    marks = [(i["began_before"], i["open"], i["duration_s"]) for i in (*october, *november)]
    assert marks == [(False, True, 7200), (True, False, 7200)]


def test_figures_of_sites_groups_and_the_report_count_the_same_incidents(run: Run) -> None:
    by = {level: json.loads(run("--json", "--by", level, *BOTH)[1]) for level in LEVELS}

    assert [row["site"] for row in by["site"]] == ["C", "A", "B"]
    assert [row["total_s"] for row in by["site"]] == [18 * 3600, 4 * 3600, 1800]
    assert [(row["group_name"], row["number"]) for row in by["group"]] == [
        ("south", 1),
        ("north", 1),
    ]
    [report] = by["report"]
    assert (report["number"], report["open"]) == (3, 1)
    assert report["mttr_s"] == (4 * 3600 + 1800) // 2
    assert report["mtbf_s"] == (6 * 86_400 - 22 * 3600 - 1800) // 3


def test_causes_that_sites_share_point_to_the_probe_or_the_broker(run: Run) -> None:
    [shared] = json.loads(run("--json", "--by", "cause", *BOTH)[1])

    assert (shared["number"], shared["sites"]) == (2, ["A", "B"])
    assert (shared["start"], shared["end"]) == (f"{FIRST}T23:00:00Z", f"{FIRST}T23:30:00Z")
    assert LOOK_AT in run(*BOTH)[1]
    assert LOOK_AT not in run("--day", f"{LAST}")[1]


def test_every_form_has_the_same_rows(run: Run) -> None:
    for level in ("incident", "cause", *LEVELS):
        rows = json.loads(run("--json", "--by", level, *BOTH)[1])
        table = run("--by", level, *BOTH)[1].splitlines()
        cells = list(csv.DictReader(io.StringIO(run("--by", level, "--format", "csv", *BOTH)[1])))

        assert rows
        assert [list(row) for row in cells] == [list(row) for row in rows]
        assert table.index("", 2) - 4 == len(rows)


def test_without_incidents_there_is_a_line_that_says_so(run: Run) -> None:
    code, output = run("--site", "B", "--day", f"{LAST}")

    assert code == 0
    assert "0 incidents" in output


def test_an_unknown_site_is_named_with_the_nearest_one(
    run: Run, engine: Engine, tmp_path: Path
) -> None:
    publish(engine, profile(tmp_path), LAST + timedelta(days=1), {"SITE-A CE h9": FINE})

    code, output = run("--site", "SITE-B", "--day", f"{LAST + timedelta(days=1)}")

    assert code == USAGE
    assert "SITE-A" in output
