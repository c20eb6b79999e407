"""Published days under another profile, on both databases: compared, and never stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from sqlalchemy import text

from sam_pipeline.schema.program.command import NO_PERMISSION
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.spark_jobs.cli import main
from sam_pipeline.spark_jobs.compute import job, reports
from sam_pipeline.spark_jobs.compute.cluster.watcher import Watcher
from sam_pipeline.spark_jobs.compute.reports import Computing
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.loading.fold import take_changes
from tests.services.postgres import as_role
from tests.support.reports.database import DAY, LATER, ONE_DAY, PROFILE, Grid, profile
from tests.support.reports.runs import url_of


@pytest.fixture(params=["sqlite", "postgresql"])
def grid(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Grid]:
    """A database with a site whose storage fails from noon on; the day is published."""
    url = f"sqlite:///{tmp_path}/sam.db"
    grid = Grid(url if request.param == "sqlite" else request.getfixturevalue("postgres_url"))
    for site in ("A", "B"):
        grid.endpoint(site, "CE", f"ce.{site}")
        grid.endpoint(site, "SRM", f"se.{site}")
        for metric in ("CE ce.{} ping", "CE ce.{} submit", "SRM se.{} put"):
            grid.result(metric.format(site), "00:00", "OK")
    grid.result("SRM se.A put", "12:00", "CRITICAL")
    with writing(grid.reporter) as connection:
        change_no = take_changes(connection)
    spark, profiles = request.getfixturevalue("spark"), [profile(tmp_path)]
    job.run(spark, grid.reporter, profiles, ONE_DAY, change_no, lambda: LATER, lambda stage: None)
    yield grid
    grid.dispose()


@pytest.fixture
def what_if(
    grid: Grid,
    tmp_path: Path,
    spark: SparkContext,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Any:
    """Calls the command, as a reader, with the session's Spark; returns code, output, errors."""

    @contextmanager
    def computing(*_: object) -> Iterator[Computing]:
        progress = Progress()
        yield Computing(spark, progress, Watcher(spark, 60, progress))

    monkeypatch.setattr(reports, "computing", computing)
    is_sqlite = grid.engine.dialect.name == "sqlite"
    url = url_of(grid.engine) if is_sqlite else as_role(url_of(grid.engine), "reader")
    monkeypatch.setenv("SAM_DATABASE_URL", url)
    monkeypatch.chdir(tmp_path)

    def call(document: str, *options: str) -> tuple[int, str, str]:
        (tmp_path / "other.toml").write_text(document)
        period = ("--day", str(DAY)) if "--month" not in options else ()
        code = main(["what-if", "--profile", "other.toml", *period, *options])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def stored(grid: Grid) -> list[int]:
    tables = ("run", "timeline_segment", "site_figure", "endpoint_figure", "published_run")
    with reading(grid.engine) as connection:
        return [
            int(connection.scalar(text(f"SELECT count(*) FROM {name}")) or 0) for name in tables
        ]


def without_storage() -> str:
    return PROFILE.replace('[functions.storage]\nflavours = ["SRM"]\n', "")


def test_another_profile_shows_what_would_differ_and_stores_nothing(
    grid: Grid, what_if: Any
) -> None:
    before = stored(grid)

    code, out, _ = what_if(without_storage(), "--json")

    assert code == 0
    [site] = json.loads(out)
    assert (site["site"], site["days_that_differ"]) == ("A", [str(DAY)])
    assert (float(site["availability_before"]), float(site["availability_after"])) == (50, 100)
    assert (site["missed_before"], site["missed_after"]) == (["availability", "reliability"], [])
    assert site["verdict"] == "newly met"
    assert stored(grid) == before


def test_a_login_that_may_not_read_reports_learns_which_role_the_command_needs(
    postgres_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Grid(postgres_url).dispose()
    (tmp_path / "other.toml").write_text(PROFILE)
    monkeypatch.setenv("SAM_DATABASE_URL", as_role(postgres_url, "loader"))

    assert (
        main(["what-if", "--profile", str(tmp_path / "other.toml"), "--day", str(DAY)])
        == NO_PERMISSION
    )
    assert "sam_reader" in capsys.readouterr().err


def test_the_same_profile_differs_in_nothing_and_says_so(what_if: Any) -> None:
    code, out, err = what_if(PROFILE)

    assert (code, err) == (0, "")
    assert "nothing differs" in out
    assert json.loads(what_if(PROFILE, "--json")[1]) == []


def test_other_targets_alone_name_the_sites_that_newly_miss_them(what_if: Any) -> None:
    looser = what_if(PROFILE + "[targets]\navailability = 10\nreliability = 10\n", "--json")
    in_words = what_if(PROFILE + "[targets]\navailability = 10\n")

    [site] = json.loads(looser[1])
    assert (site["site"], site["verdict"], site["days"]) == ("A", "newly met", 0)
    assert "availability 10 %" in in_words[1]


def test_a_report_of_another_name_can_be_compared_with_a_month_of_one_site(what_if: Any) -> None:
    other = without_storage().replace('name = "test"', 'name = "other"')
    month = ("--month", f"{DAY:%Y-%m}", "--report", "test", "--format", "csv")

    of_a = what_if(other, *month, "--site", "A")
    of_b = what_if(other, *month, "--site", "B")

    assert of_a[0] == of_b[0] == 0
    assert of_a[1].splitlines()[1].startswith("test,")
    assert of_b[1].strip() == ""
    assert "not compared" in of_a[2]


def test_what_cannot_be_compared_is_a_usage_error_before_spark_starts(
    what_if: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "computing", None)

    unknown = what_if(PROFILE.replace('name = "test"', 'name = "tset"'))
    empty = what_if(PROFILE, "--month", "2026-01")

    assert (unknown[0], empty[0]) == (64, 64)
    assert "test" in unknown[2]
    assert "2026-01" in empty[2]
