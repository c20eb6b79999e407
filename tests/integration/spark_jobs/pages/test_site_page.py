"""The page of a site that failed on 18 days: what, when exactly, and why, at a glance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.spark_jobs.explain.results import NOT_READ, NOT_STORED
from sam_pipeline.spark_jobs.pages import site_tree
from tests.integration.spark_jobs.conftest import SamReport
from tests.support.reports import bad_month
from tests.support.reports.bad_month import BAD, FIRST_BAD, GOOD, LAST_BAD, RESULTS_A_DAY
from tests.support.reports.database import url_of
from tests.support.reports.pages import section_of

WRITE = ("site", "--month", "2026-10", "--out", "out")


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SamReport]:
    """`sam-report` in a directory with the pages in `out`."""
    directory = tmp_path_factory.mktemp("bad_month")
    grid = bad_month.fill(f"sqlite:///{directory}/sam.db", directory)
    sam_report = SamReport(url_of(grid.engine), directory)
    sam_report(*WRITE)
    yield sam_report
    grid.dispose()


def page_of(bad: SamReport, site: str, out: str = "out") -> str:
    path = bad.workplace.directory / out / "test/2026-10" / f"{site}.html"
    return path.read_text(encoding="utf-8")


def test_a_month_with_too_many_failing_results_says_so_and_where_to_see_them(
    bad: SamReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_tree, "MAX_RESULTS_OF_SITE", 2 * RESULTS_A_DAY)

    bad(*WRITE[:-1], "few")

    page = page_of(bad, BAD, "few")
    assert "until 18 October, 06:00" in page
    assert NOT_STORED not in page
    assert NOT_READ in section_of(page, FIRST_BAD)
    assert "checksum mismatch" in section_of(page, LAST_BAD)


def test_a_site_before_its_first_day_shows_since_when_it_is_in_the_topology(
    engine: Engine, tmp_path: Path, sam_report: SamReport
) -> None:
    grid = bad_month.fill(engine, tmp_path)
    grid.endpoint("LATER-T2", "CE", "ce1.later", validFrom="2026-10-25T06:00:00Z")
    grid.endpoint("FORMER-T2", "CE", "ce1.former", validTo="2026-09-30T12:00:00Z")
    grid.endpoint("OTHER-T2", "CE", "ce1.other")
    grid.dispose()

    for site, fact in (
        ("LATER-T2", "from 2026-10-25T06:00:00Z on"),
        ("FORMER-T2", "until 2026-09-30T12:00:00Z"),
        ("OTHER-T2", "expected that day by test"),
        ("ASTER-T2", f"did you mean {GOOD}"),
    ):
        error = sam_report("explain", "--day", LAST_BAD, "--site", site, code=64).err
        assert f"no site {site} on {LAST_BAD}: " in error and fact in error
