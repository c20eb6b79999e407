"""`sam-report show`: month against month, one site, and how many days a figure covers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.spark_jobs.cli import main
from sam_pipeline.spark_jobs.rules.groups import Member
from tests.services.postgres import as_role
from tests.support.reports.database import profile
from tests.support.reports.published_days import publish

GOOD = {"00:00": "OK"}
HALF = {"00:00": "OK", "12:00": "CRITICAL"}
DOWN = {"00:00": "CRITICAL"}
NORTH = [Member("federation", "North", "A", 0), Member("federation", "North", "B", 0)]
AUTUMN = ("--by", "month", "--from", "2026-09-10", "--to", "2026-11-10")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def show(engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """`sam-report show …` as a reader of four months; returns exit code, stdout and stderr."""
    url = f"sqlite:///{tmp_path}/sam.db"
    if engine.dialect.name == "postgresql":
        url = as_role(engine.url.render_as_string(hide_password=False), "reader")
    config = tmp_path / "sam.toml"
    config.write_text(f'[database]\nurl = "{url}"\n')
    config.chmod(0o600)
    report = profile(tmp_path)
    for day, endpoints in (
        (date(2026, 8, 31), {"A CE h1": DOWN}),
        (date(2026, 9, 10), {"A CE h1": HALF, "B CE h2": GOOD}),
        (date(2026, 9, 11), {"A CE h1": GOOD}),
        (date(2026, 11, 1), {"A CE h1": GOOD, "B CE h2": HALF}),
    ):
        publish(engine, report, day, endpoints, NORTH)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["show", *arguments, "--config", str(config)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_each_month_is_compared_with_the_one_before(show: Run) -> None:
    _, out, _ = show(*AUTUMN, "--json")

    rows = [
        [row["site"], row["month"], row["availability"], row["availability_change"], row["days"]]
        for row in json.loads(out)
    ]
    assert rows == [
        ["A", "2026-09", 75, 75, 2],  # after August, which is not listed
        ["A", "2026-11", 100, None, 1],  # nothing is known of October
        ["B", "2026-09", 100, None, 1],
        ["B", "2026-11", 50, None, 1],
    ]


def test_months_of_groups_are_listed_with_their_sites(show: Run) -> None:
    _, out, _ = show(*AUTUMN, "--level", "group", "--format", "csv")

    first, second = csv.DictReader(io.StringIO(out))
    assert (first["group_name"], first["month"], first["days"]) == ("North", "2026-09", "2")
    # The mean of 75 and 100, after 0 of site A alone.
    assert (first["availability"], first["availability_change"]) == ("87.50000", "87.50000")
    assert (first["sites_expected"], first["sites_known"]) == ("2", "2")
    assert second["month"] == "2026-11" and second["missed"] == "availability reliability"


def test_the_table_of_months_says_how_many_days_count(show: Run) -> None:
    _, out, _ = show(*AUTUMN)

    heading, _, columns, _, first, *_ = out.splitlines()
    assert heading == "test, 2026-09 to 2026-11"
    assert columns.split()[:4] == ["site", "month", "availability", "change"]
    assert first.split()[:4] == ["A", "2026-09", "75.00", "+75.00"]
    assert "2 of 30" in first
    assert "2026-09-01 to 2026-09-09" in out


def test_months_of_other_levels_are_refused(show: Run) -> None:
    code, _, err = show(*AUTUMN, "--level", "endpoint")

    assert code == 64
    assert "--by month" in err


def test_a_figure_that_covers_part_of_the_period_says_so(show: Run) -> None:
    period = ("--from", "2026-09-10", "--to", "2026-09-11")

    _, out, _ = show(*period)
    lines = [line.split() for line in out.splitlines()]
    assert lines[2][-2:] == ["days", "target"]
    assert [line[-4:-1] for line in lines[4:6]] == [["2", "of", "2"], ["1", "of", "2"]]
    assert " of " not in show("--day", "2026-09-10")[1].partition("targets")[0]
    _, out, _ = show(*period, "--level", "group", "--json")
    assert [row["days"] for row in json.loads(out)] == [2]


@pytest.mark.parametrize("level", ["site", "endpoint", "metric"])
def test_only_the_requested_site_is_shown(show: Run, level: str) -> None:
    _, out, _ = show("--day", "2026-09-10", "--level", level, "--site", "B", "--json")

    assert [(row["site"], row["availability"]) for row in json.loads(out)] == [("B", 100)]


def test_months_of_one_site(show: Run) -> None:
    _, out, _ = show(*AUTUMN, "--site", "B", "--json")

    assert {row["site"] for row in json.loads(out)} == {"B"}


@pytest.mark.parametrize(
    ("site", "message"),
    [("b", "did you mean B?"), ("B", "from 2026-09-10 to 2026-11-01"), ("x", "A, B")],
)
def test_an_unknown_site_is_refused_with_the_nearest_one(
    show: Run, site: str, message: str
) -> None:
    code, out, err = show("--day", "2026-08-31", "--site", site)

    assert (code, out) == (64, "")
    assert site in err and message in err


def test_a_site_does_not_choose_groups(show: Run) -> None:
    assert show("--day", "2026-09-10", "--level", "group", "--site", "A")[0] == 64
