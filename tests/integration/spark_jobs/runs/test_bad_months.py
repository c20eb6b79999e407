"""Sites that were below a target in three months in a row, by month and on pages."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.spark_jobs.profiles.file import read_profile
from tests.integration.spark_jobs.conftest import SamReport
from tests.support.reports.published_days import publish

PROFILE = """\
name = "critical"
validity_s = "off"
[flavours.CE]
metrics = ["ping"]
[functions.ce]
flavours = ["CE"]
[targets.sites.LENIENT]
availability = 10
reliability = 10
"""
AUGUST, SEPTEMBER, OCTOBER = (date(2026, month, 5) for month in (8, 9, 10))
GOOD, BAD = {"00:00": "OK"}, {"00:00": "OK", "06:00": "CRITICAL"}


@pytest.fixture(autouse=True)
def three_months(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "critical.toml").write_text(PROFILE)
    report = read_profile(tmp_path / "critical.toml")
    for day in (AUGUST, SEPTEMBER, OCTOBER):
        mixed = GOOD if day == SEPTEMBER else BAD
        sites = {"STEADY CE a": BAD, "MIXED CE b": mixed, "LENIENT CE c": BAD}
        publish(engine, report, day, sites)


def test_show_by_month_marks_the_third_bad_month_in_a_row(sam_report: SamReport) -> None:
    months = ("show", "--by", "month", "--from", "2026-09-01", "--to", "2026-10-31")

    rows = json.loads(sam_report(*months, "--json"))
    table = sam_report(*months)

    marked = [(row["site"], row["month"]) for row in rows if row["bad_months_in_a_row"]]
    assert marked == [("STEADY", "2026-10")]
    [line] = [line for line in table.splitlines() if line.endswith("3 in a row")]
    assert line.split()[:2] == ["STEADY", "2026-10"]


def test_pages_name_the_sites_with_three_bad_months_in_a_row(
    sam_report: SamReport, tmp_path: Path
) -> None:
    sam_report("site", "--from", "2026-09-01", "--to", "2026-10-31", "--out", str(tmp_path / "out"))

    october, september = (
        (tmp_path / "out/critical" / month / "index.html").read_text()
        for month in ("2026-10", "2026-09")
    )
    sites = october.split("Three bad months in a row")[1].split("</p>")[0]
    assert "STEADY" in sites and "MIXED" not in sites and "LENIENT" not in sites
    assert "Three bad months" not in september
    start = (tmp_path / "out/index.html").read_text()
    assert start.count("three bad months in a row") == 1
