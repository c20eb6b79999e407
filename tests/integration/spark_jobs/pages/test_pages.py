"""The pages of months, groups, trends, incidents and changes, from figures in the database."""

from __future__ import annotations

import base64
import errno
import os
import re
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from sam_pipeline.spark_jobs.explain.incidents.figures import ReportIncidents
from sam_pipeline.spark_jobs.explain.incidents.incident import Incident
from sam_pipeline.spark_jobs.pages.incidents import incidents_view
from sam_pipeline.spark_jobs.pages.month import Month
from sam_pipeline.spark_jobs.pages.writer import PageFiles, group_page, site_page
from sam_pipeline.spark_jobs.rules.days import DAY_S, month_of
from sam_pipeline.spark_jobs.rules.seconds import Seconds
from sam_pipeline.spark_jobs.runs.published import DayFigure
from sam_pipeline.spark_jobs.runs.targets import PeriodTargets
from sam_pipeline.sql.database.engine import writing
from tests.integration.spark_jobs.conftest import SamReport
from tests.integration.spark_jobs.pages.conftest import pages_below, write_pages
from tests.support.reports.database import Grid, profile, url_of
from tests.support.reports.month import site_name
from tests.support.reports.pages import (
    BAD_SITE,
    FIRST,
    LAST,
    MARKED_DAY,
    REPORT,
    SIZE,
    fill,
    section_of,
    write_large_pages,
)

OCTOBER, NOVEMBER = "test/2026-10", "test/2026-11"
MONTH_BOUND, SITE_BOUND = 500_000, 1_500_000

Pages = dict[str, str]


def execute(grid: Grid, *statements: str) -> None:
    with writing(grid.engine) as connection:
        for statement in statements:
            connection.execute(text(statement))


def test_each_month_has_its_pages_whose_links_lead_to_existing_pages_and_days(
    pages: Pages,
) -> None:
    parsed = {name: Page(page) for name, page in pages.items()}

    for month in (OCTOBER, NOVEMBER):
        names = {name for name in pages if name.startswith(month)}
        kinds = ("index", "trends", "incidents", "changes", "groups/federation", "groups/region")
        assert {f"{month}/{kind}.html" for kind in kinds} <= names
        assert len(names) == 6 + SIZE.sites
    # A site that is named like another page has a page of its own.
    assert "<h1>index</h1>" in pages[f"{NOVEMBER}/{site_page('index')}"]
    for name, page in parsed.items():
        assert page.outside == [] and page.loaded == 0
        for link in page.links:
            path, _, anchor = link.partition("#")
            target = parsed[os.path.normpath(f"{name}/../{path}" if path else name)]
            assert not anchor or anchor in target.ids, f"{name}: {link}"


def test_text_of_probes_and_users_is_escaped_and_only_the_own_script_is_allowed(
    pages: Pages,
) -> None:
    bad = pages[f"{NOVEMBER}/{BAD_SITE}.html"]

    assert "&lt;script&gt;alert(" in bad and "<script>alert" not in bad
    odd = [page for name, page in pages.items() if "SUM-A1" in name]
    assert len(odd) == 2
    assert "<h1>=SUM(A1) &lt;b&gt;&amp;/../x</h1>" in odd[0]
    for page in pages.values():
        [script] = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
        allowed = base64.b64encode(sha256(script.encode()).digest()).decode()
        [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
        assert policy.startswith("default-src 'none';")
        assert f"script-src 'sha256-{allowed}';" in policy


def test_downtimes_and_exclusions_are_drawn_and_listed(pages: Pages) -> None:
    day = section_of(pages[f"{NOVEMBER}/{BAD_SITE}.html"], MARKED_DAY)

    for kind in ("sc", "sa", "se"):
        assert f'class="{kind}" d="M720 0h120"' in day
    assert "new &lt;kernel&gt; (" in day and "does not count" in day
    for reason in ("the probe was wrong", "power cut", "its clock was wrong"):
        assert reason in day
    # An excluded monitoring host is listed only at the sites that it measured.
    assert "its clock was wrong" not in pages[f"{NOVEMBER}/{site_name(8)}.html"]


def test_a_group_below_its_coverage_target_is_never_green(copy: Grid, tmp_path: Path) -> None:
    execute(
        copy,
        "INSERT INTO group_site (run_id, group_type, group_name, site, weight)"
        " SELECT run_id, 'VO', 'ops', site, 0 FROM site_figure WHERE site = 'SITE-004'"
        " UNION ALL SELECT run_id, 'VO', 'ops', 'SILENT', 0 FROM run",
        "INSERT INTO site_figure (run_id, site, ok_s, warning_s, critical_s, unknown_s,"
        " missing_s, downtime_s, excluded_s)"
        " SELECT run_id, 'SILENT', 0, 0, 0, 0, 86400, 0, 0 FROM run",
    )

    page = (write_pages(copy, tmp_path / "out") / NOVEMBER / group_page("VO")).read_text()

    assert '<td class="p">!100.00' in page
    assert '<td class="bad">✗ 1 of 2' in page


def test_a_period_only_chooses_the_months_whose_whole_pages_are_written(
    filled: Grid, pages: Pages, tmp_path: Path
) -> None:
    days = ("--from", "2026-10-30", "--to", "2026-11-02")

    found = pages_below(write_pages(filled, tmp_path / "out", *days))

    assert found == pages


def test_both_databases_give_the_same_pages(
    pages: Pages, postgres_url: str, tmp_path: Path
) -> None:
    grid = fill(postgres_url, tmp_path)

    from_postgresql = pages_below(write_pages(grid, tmp_path / "out"))

    grid.dispose()
    assert from_postgresql.keys() == pages.keys()
    assert [name for name in pages if from_postgresql[name] != pages[name]] == []


def test_a_full_disk_exits_74_and_leaves_the_old_pages(
    filled: Grid, pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in pages:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("an old page")
    opened = os.open
    room = iter(range(7))

    def full(path: Any, *arguments: Any, **more: Any) -> int:
        if str(path).endswith(".new") and next(room, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return opened(path, *arguments, **more)

    sam_report = SamReport(url_of(filled.engine), tmp_path)
    monkeypatch.setattr("os.open", full)
    refused = sam_report("site", "--from", FIRST, "--to", LAST, "--out", tmp_path, code=74)

    monkeypatch.undo()
    assert "No space left on device" in refused.err and "make room" in refused.err
    after = pages_below(tmp_path)
    assert {name for name in pages if after[name] != "an old page"} == {
        name for name in pages if after[name] == pages[name]
    }
    assert list(after.values()).count("an old page") == len(pages) - 7


def test_large_pages_stay_small(tmp_path: Path) -> None:
    whole = month_of(FIRST)
    sites = [site_name(number) for number in range(500)]
    figures = [DayFigure(day, (site,), Seconds(ok=DAY_S)) for site in sites for day in whole.days()]
    incidents = [
        Incident(site, start, start + 1800, False, False)
        for number, site in enumerate(sites)
        for start in range(whole.start + number, whole.end, DAY_S)
    ]
    found = ReportIncidents(REPORT, whole, [], incidents, figures)
    month = Month(REPORT, whole, "large", [], "", PeriodTargets(profile(tmp_path)))

    of_month, of_site = write_large_pages(tmp_path, tmp_path)
    PageFiles(tmp_path).write("i.html", "incidents.html", view=incidents_view(found), month=month)

    assert of_month.stat().st_size < MONTH_BOUND
    assert of_site.stat().st_size < SITE_BOUND
    assert (tmp_path / "i.html").stat().st_size < MONTH_BOUND
    assert of_month.read_text().count('<tr><th scope="row"><a') == 500
    assert of_site.read_text().count('<svg class="l"') == 31 * (1 + 25)


class Page(HTMLParser):
    """The links and ids of a page, and the number of things that it loads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.loaded = 0
        self.outside: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        self.loaded += tag in ("iframe", "object", "link", "img")
        for name, value in attrs:
            self.loaded += name.startswith("on")
            if name == "id":
                assert value not in self.ids
                self.ids.add(value)
            if name in ("href", "src"):
                is_outside = re.match(r"[a-z]+:|/", value)
                (self.outside if is_outside else self.links).append(value)
