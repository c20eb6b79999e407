"""The page of a site that failed on 18 days: what, when exactly, and why, at a glance."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.spark_jobs.explain.results import NOT_READ, NOT_STORED
from sam_pipeline.spark_jobs.pages import site_tree
from tests.integration.spark_jobs.conftest import SamReport
from tests.support.reports import bad_month
from tests.support.reports.bad_month import BAD, FIRST_BAD, GOOD, LAST_BAD, OCTOBER, RESULTS_A_DAY
from tests.support.reports.database import url_of
from tests.support.reports.pages import section_of

CAUSE = "checksum mismatch (* tries)"
TIMES = "06:00:00-18:00:00 CRITICAL: "
BECAUSE = "function srm: service SRM: endpoint se1.pine.example.org: metric ping"
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


@pytest.fixture(scope="module")
def page(bad: SamReport) -> str:
    return page_of(bad, BAD)


def visible(text: str, instead: str = "") -> str:
    return " ".join(html.unescape(re.sub("<[^>]+>", instead, text)).split())


def test_the_month_comes_first_then_the_causes_then_the_days(page: str) -> None:
    month, why, days = re.split('id="(?:why|days)"', page)

    assert 'id="glance"' in month
    assert "m-2026-10" not in month + why and "m-2026-10" in days  # ids of messages
    for day in OCTOBER.days():
        assert page.count(f'id="{day}"') == 1
    [opened] = re.findall(r'<details class="day" open>.*?<time datetime="(.*?)"', page, re.DOTALL)
    assert opened == str(LAST_BAD)
    assert NOT_READ not in page and "until 18 October" not in page


def test_a_run_of_days_with_one_cause_is_one_line_with_the_count_of_all_its_texts(
    bad: SamReport, page: str
) -> None:
    """The texts differ only in numbers."""
    causes = page.partition('id="why"')[2].partition('id="days"')[0]
    [group] = bad("explain", "--site", BAD, "--day", LAST_BAD, "--group", "--json").json
    [cause] = group["causes"]

    summaries = map(visible, re.findall("<summary>(.*?)</summary>", page, re.DOTALL))
    [folded] = [line for line in summaries if "18 days" in line]
    assert f"2 to 19 October, 18 days: {CAUSE}, ping" in folded
    assert page.count('<details class="spell"') == 1
    [row] = re.findall("<tr><td class=.*?</tr>", causes)
    assert CAUSE in row
    assert f'<td class="number">{18 * RESULTS_A_DAY}</td>' in row
    assert f'<a href="#{FIRST_BAD}">2 to 19 October</a>' in row
    # The explanation of a day has the same cause with the same count.
    day = section_of(page, LAST_BAD)
    assert html.escape(cause["text"]) in day
    assert f'<td class="number">{cause["count"]}</td>' in day


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


def test_each_stretch_of_a_bar_is_listed_with_its_times_and_its_cause(
    bad: SamReport, page: str
) -> None:
    day = section_of(page, LAST_BAD)
    ticket = bad("explain", "--site", BAD, "--day", LAST_BAD, "--ticket").out

    assert f"<title>{TIMES}{BECAUSE}</title>" in day
    assert "<title>00:00:00-06:00:00 OK</title>" in day
    assert f"<title>{TIMES}{BECAUSE}</title>" in page.partition('id="why"')[0]
    assert TIMES + BECAUSE in " ".join(ticket.split())
    rows = [
        visible(row, "|")
        for table in re.findall(r'<table class="plain stretches">.*?</table>', day, re.DOTALL)
        for row in re.findall("<tr><td.*?</tr>", table)
    ]
    assert f"06:00:00 to 18:00:00||12 h||CRITICAL||{BECAUSE}|" in rows[0]
    assert [row for row in rows if "endpoint SRM se1" in row and row.endswith("|metric ping||")]
    assert [row for row in rows if "metric SRM se1" in row and "checksum mismatch" in row]
    # The lanes of metrics are folded below their endpoint.
    metrics = day.partition('<tr class="endpoint">')[2].partition('<tr class="metrics">')[2]
    assert re.match(r'<td colspan="3"><details><summary>1 metric', metrics)
    assert '<tr class="metric"><th scope="row"><small>metric</small> ping' in metrics
    assert re.search(r"<title>06:00:00-18:00:00 CRITICAL: CRITICAL: checksum mismatch", metrics)


def test_a_site_that_was_always_ok_has_no_sections(bad: SamReport) -> None:
    page = page_of(bad, GOOD)

    assert "<details" not in page.partition("<main>")[2]
    for day in OCTOBER.days():
        assert f'<tr id="{day}">' in page


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
