"""`sam-report pages --year`: one page for each report, of sites and groups by month."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.program.command import USAGE
from sam_pipeline.spark_jobs.rules.figures import Member
from sam_pipeline.sql.database.engine import writing
from tests.integration.spark_jobs.conftest import SamReport
from tests.support.database.dialects import only_on
from tests.support.reports.database import profile
from tests.support.reports.month import insert
from tests.support.reports.published_days import publish

GOOD, NIGHT, MORNING = (
    {"00:00": "OK"},
    {"00:00": "OK", "18:00": "CRITICAL"},
    {"00:00": "CRITICAL", "06:00": "OK"},
)
MEMBERS = (Member("tier", "2", "NORTH", 1), Member("tier", "2", "SOUTH", 1))


@pytest.fixture
def year(engine: Engine, sam_report: SamReport, tmp_path: Path) -> Path:
    """The pages of 2025: SOUTH failed in the night to October."""
    report = profile(tmp_path, ("[functions.compute]", "[functions.ce]"))
    for day, south in (
        (date(2025, 9, 29), GOOD),
        (date(2025, 9, 30), NIGHT),
        (date(2025, 10, 1), MORNING),
        (date(2025, 12, 31), GOOD),
    ):
        publish(engine, report, day, {"NORTH CE n1": GOOD, "SOUTH CE s1": south}, MEMBERS)
    seal = {"report": "test", "month": "2025-09", "revision": 1, "who": "Jane", "reason": "agreed"}
    with writing(engine) as connection:
        insert(connection, "seal", [{**seal, "sealed_at": 1_760_000_000}])
    sam_report("pages", "--month", "2025-10", "--out", tmp_path / "pages")
    sam_report("pages", "--year", "2025", "--out", tmp_path / "pages")
    return tmp_path / "pages"


@only_on("sqlite")
def test_a_year_has_sites_and_groups_by_month_the_worst_incidents_and_the_revisions(
    year: Path,
) -> None:
    page = (year / "test/2025.html").read_text()

    def cells(name: str) -> list[str]:
        [row] = re.findall(rf'<tr><th scope="row">{name}</th>(.*?)</tr>', page, re.DOTALL)
        return [re.sub("<.*?>", "", cell).strip() for cell in row.split("<td")[1:]]

    south = [cell.split(">")[-1].strip("✓✗!· ") for cell in cells("SOUTH")]
    # Twelve hours of four days; six hours of two days in September, and of one in October.
    assert south == ["87.50", "87.50", *[""] * 8, "87.5", "75.0", "", "100.0"]
    assert "NORTH" in page and ">tier<" in page
    [incident] = re.findall(r"<li><b>SOUTH</b> for (.*?), (.*?):  ?", page)
    assert incident == ("12 h", "30 September 18:00 to 1 October 06:00")
    assert "September: revision 1, 2025-10-09 by Jane: agreed" in page


@only_on("sqlite")
def test_a_year_links_to_the_months_with_pages_and_the_start_page_to_the_year(year: Path) -> None:
    page, start = (year / "test/2025.html").read_text(), (year / "index.html").read_text()

    assert (
        re.findall(r'<th scope="col"><a href="(.*?)">', page) == ["2025-10/index.html"] * 2
    )  # of groups and of sites
    assert 'href="test/2025.html"' in start


@only_on("sqlite")
def test_a_year_goes_with_no_other_period_and_no_site(
    sam_report: SamReport, tmp_path: Path
) -> None:
    for options, problem in (
        (("--year", "2025", "--month", "2025-10"), "expected one of"),
        (("--year", "2025", "--site", "A"), "--site"),
        (("--year", "2999"), "in the future"),
        (("--year", "25"), "not a year"),
    ):
        assert problem in sam_report("pages", "--out", tmp_path, *options, code=USAGE).err
