"""Published days under another profile: compared, and never stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark import SparkContext

from sam_pipeline.spark_jobs.compute import job, reports
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.loading.fold import take_changes
from tests.integration.spark_jobs.conftest import SamReport
from tests.support.database.dialects import only_on
from tests.support.database.sql_rows import query
from tests.support.reports.database import DAY, LATER, ONE_DAY, PROFILE, Grid, profile

WITHOUT_STORAGE = PROFILE.replace('[functions.storage]\nflavours = ["SRM"]\n', "")
TABLES = ("run", "timeline_segment", "site_figure", "endpoint_figure", "published_run")
DIFFERENT = ("what-if", "--profile", "other.toml")
OF_DAY = (*DIFFERENT, "--day", DAY)


@pytest.fixture
def other(spark: SparkContext, grid: Grid, tmp_path: Path) -> Path:
    """The file of another profile; the published day of site A has failing storage since noon."""
    for site in ("A", "B"):
        grid.endpoint(site, "CE", f"ce.{site}")
        grid.endpoint(site, "SRM", f"se.{site}")
        for metric in ("CE ce.{} ping", "CE ce.{} submit", "SRM se.{} put"):
            grid.result(metric.format(site), "00:00", "OK")
    grid.result("SRM se.A put", "12:00", "CRITICAL")
    with writing(grid.reporter) as connection:
        change_no = take_changes(connection)
    profiles = [profile(tmp_path)]
    job.run(spark, grid.reporter, profiles, ONE_DAY, change_no, lambda: LATER, lambda stage: None)
    path = tmp_path / "other.toml"
    path.write_text(WITHOUT_STORAGE)
    return path


def test_another_profile_shows_what_would_differ_and_stores_nothing(
    grid: Grid, other: Path, sam_report: SamReport
) -> None:
    counts = " UNION ALL ".join(f"SELECT count(*) FROM {table}" for table in TABLES)
    before = query(grid.engine, counts)

    [site] = sam_report(*OF_DAY, "--json").json

    assert (site["site"], site["days_that_differ"]) == ("A", [str(DAY)])
    assert (float(site["availability_before"]), float(site["availability_after"])) == (50, 100)
    assert (site["missed_before"], site["missed_after"]) == (["availability", "reliability"], [])
    assert site["verdict"] == "newly met"
    assert query(grid.engine, counts) == before


@only_on("sqlite")
def test_only_what_differs_is_listed_and_what_cannot_be_compared_is_refused(
    other: Path, sam_report: SamReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    month = (*DIFFERENT, "--month", f"{DAY:%Y-%m}", "--report", "test", "--format", "csv")
    other.write_text(WITHOUT_STORAGE.replace('name = "test"', 'name = "other"'))
    of_a, of_b = (sam_report(*month, "--site", site) for site in "AB")
    other.write_text(PROFILE)
    same = sam_report(*OF_DAY)
    other.write_text(PROFILE + "[targets]\navailability = 10\nreliability = 10\n")
    [looser] = sam_report(*OF_DAY, "--json").json

    assert of_a.out.splitlines()[1].startswith("test,") and "not compared" in of_a.err
    assert of_b.out.strip() == "" and "nothing differs" in same.out
    assert (looser["site"], looser["verdict"], looser["days"]) == ("A", "newly met", 0)
    monkeypatch.setattr(reports, "computing", None)  # refused before Spark starts
    assert "2026-01" in sam_report(*DIFFERENT, "--month", "2026-01", code=64).err
