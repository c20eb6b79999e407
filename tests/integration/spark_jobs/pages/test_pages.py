"""The pages of months, groups, trends, incidents and changes, from figures in the database."""

from __future__ import annotations

import base64
import errno
import os
import re
from datetime import date
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from sam_pipeline.schema.program.wording import duration
from sam_pipeline.spark_jobs.explain.incidents.figures import ReportIncidents
from sam_pipeline.spark_jobs.explain.incidents.incident import Incident
from sam_pipeline.spark_jobs.explain.incidents.reader import read_incidents
from sam_pipeline.spark_jobs.pages.incidents import incidents_view
from sam_pipeline.spark_jobs.pages.month import Month
from sam_pipeline.spark_jobs.pages.verdict import (
    DOWNTIME,
    MISSED,
    MISSING,
    NOT_COMPUTED,
    NOT_EXPECTED,
)
from sam_pipeline.spark_jobs.pages.writer import PageFiles, group_page, site_page
from sam_pipeline.spark_jobs.rules.days import DAY_S, month_of
from sam_pipeline.spark_jobs.rules.seconds import Seconds
from sam_pipeline.spark_jobs.rules.statuses import FOLDED
from sam_pipeline.spark_jobs.runs.published import DayFigure
from sam_pipeline.spark_jobs.runs.targets import PeriodTargets
from sam_pipeline.sql.database.engine import reading, writing
from tests.integration.spark_jobs.conftest import SamReport
from tests.integration.spark_jobs.pages.conftest import pages_below, write_pages
from tests.support.reports.database import Grid, profile, url_of
from tests.support.reports.month import Size, site_name, write_month
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
from tests.support.reports.published_days import publish

OCTOBER, NOVEMBER = "test/2026-10", "test/2026-11"
MONTH_BOUND, SITE_BOUND = 500_000, 1_500_000

Pages = dict[str, str]


@pytest.fixture
def november(pages: Pages) -> str:
    return pages[f"{NOVEMBER}/index.html"]


def row_of(site: str, page: str) -> str:
    return page.partition(f">{site}<")[2].partition("<tr")[0]


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


def test_sites_that_miss_a_target_come_first_and_the_worst_is_always_on_top(november: str) -> None:
    missed, _, met = november.partition("Targets met:")

    for rows, figure in ((missed, r'<td class="x[ d]*">✗(\d+\.\d+)'), (met, r"<td.*>✓(\d+\.\d+)")):
        figures = [float(figure) for figure in re.findall(figure, rows)]
        assert len(figures) > 1
        assert figures == sorted(figures)
    assert BAD_SITE in missed and "SITE-004" in met
    assert re.search(r"<b>\d+ of 10</b> sites", november)


def test_a_red_day_leads_to_the_failing_results_and_a_good_one_is_an_empty_cell(
    pages: Pages, november: str
) -> None:
    link = re.search(
        rf'<td class="x[ d]*"><a href="({BAD_SITE}.html#(2026-11-\d\d))">✗\d+</a>', november
    )

    assert link
    day = section_of(pages[f"{NOVEMBER}/{BAD_SITE}.html"], date.fromisoformat(link[2]))
    assert "no answer" in day and "message m-" in day
    assert f"--report test --day {link[2]} --site {BAD_SITE}" in day
    assert "\n<td>\n" in november and "empty: 100" in november
    assert not re.search(r"<td[^>]*>✓?100\n", november)
    # UNKNOWN and MISSING are one small text beside what is not known; a long name is in a title.
    assert re.search(
        r"\n<td[^>]*>(✗ )?\d+\.\d <small>(\?\d+\.\d ?)?(∅\d+\.\d)?</small>\n", november
    )
    heads = re.findall(r'<th scope="col">([A-Z].*?)</th>', november.partition("</thead>")[0])
    assert len(heads) == 4
    [title] = re.findall(r'title="(ÉCOLE [^"]*)"', november)
    assert f">{title}</a>" in november


def test_a_day_on_which_a_site_was_not_expected_is_not_called_not_computed(
    copy: Grid, tmp_path: Path
) -> None:
    of_site = "WHERE site = 'SITE-004' AND run_id = 1"
    execute(copy, f"DELETE FROM site_figure {of_site}", f"DELETE FROM group_site {of_site}")

    page = (write_pages(copy, tmp_path / "out") / OCTOBER / "index.html").read_text()

    for verdict in (NOT_EXPECTED, NOT_COMPUTED):
        assert f"{verdict.symbol}</span> {verdict.meaning}" in page
    days = re.findall(r'<td(?: class="(.)")?>', row_of("SITE-004", page))[3:]
    assert "".join(kind or "m" for kind in days[:30]) == 27 * NOT_COMPUTED.kind + "emm"


def test_a_site_below_its_target_only_through_announced_downtime_is_listed_after_all_failures(
    small_grid: Grid, tmp_path: Path
) -> None:
    with writing(small_grid.engine) as connection:
        write_month(connection, profile(tmp_path), date(2026, 11, 1), Size(12, 3, 1))
    execute(
        small_grid,
        "UPDATE site_figure SET ok_s = 0, downtime_s = 86400 WHERE site = 'SITE-003'",
    )

    out = write_pages(small_grid, tmp_path / "out", "--month", "2026-11")

    page = (out / NOVEMBER / "index.html").read_text()
    bands = re.findall(r'<tr class="band">.*?>([^<]*): (\d+)</th>', page)
    titles = ["Targets missed", f"Availability {DOWNTIME.meaning}", "Targets met"]
    assert [title for title, _ in bands] == titles
    assert bands[1][1] == "1"
    row = row_of("SITE-003", page)
    assert f'<td class="{DOWNTIME.kind}">{DOWNTIME.symbol}0.00' in row
    assert row.count(f"{DOWNTIME.symbol}0</a>") == 3
    assert f'class="{MISSED.kind}' not in row


def test_an_open_day_shows_its_end(pages: Pages, november: str) -> None:
    for name in ("index.html", f"{NOVEMBER}/index.html", f"{NOVEMBER}/{BAD_SITE}.html"):
        assert f"until {LAST} 12:00" in pages[name]
    assert "until 12:00" in november
    assert "until" not in pages[f"{OCTOBER}/{BAD_SITE}.html"].partition("<body>")[2]


def test_downtimes_and_exclusions_are_drawn_and_listed(pages: Pages) -> None:
    page = pages[f"{NOVEMBER}/{BAD_SITE}.html"]
    day = section_of(page, MARKED_DAY)

    for kind in ("sc", "sa", "se"):
        assert f'class="{kind}" d="M720 0h120"' in day
    assert "new &lt;kernel&gt; (" in day and "does not count" in day
    for reason in ("the probe was wrong", "power cut", "its clock was wrong"):
        assert reason in day
    # An excluded monitoring host is listed only at the sites that it measured.
    assert "its clock was wrong" not in pages[f"{NOVEMBER}/{site_name(8)}.html"]
    style = page.partition("<style>")[2].partition("</style>")[0]
    for name in ("UNKNOWN", "MISSING"):
        assert f'<th scope="col" class="name">{name}</th>' in page
    colours = {re.findall(rf"\.{kind} {{ stroke: ([^;]+);", style)[0] for kind in ("un", "mi")}
    assert len(colours) == 2


def test_groups_are_sorted_and_show_how_many_of_their_sites_have_a_figure(pages: Pages) -> None:
    federations = pages[f"{NOVEMBER}/groups/federation.html"]
    page = pages[f"{NOVEMBER}/groups/region.html"]

    assert re.search(r"FEDERATION-00: \d+\.\d\d % .*10 of 10", federations)
    assert f'href="../{BAD_SITE}.html"' in federations
    rows = re.findall(
        r'<th scope="row"><a href="#(group-REGION-\d)"[^>]*>(REGION-\d)</a>\n(.*)', page
    )
    assert rows
    assert all(anchor == f"group-{name}" and f'id="{anchor}"' in page for anchor, name, _ in rows)
    missed = page.partition("Targets missed")[2].partition("Targets met")[0]
    for part in (missed, page.partition("Targets met")[2]):
        by_symbol = re.findall(r"\n<td class=\"\w[ d]*\">([✗!✓])(\d+\.\d\d)\n", part)
        figures = [("✗!✓".index(symbol), float(figure)) for symbol, figure in by_symbol]
        assert figures and figures == sorted(figures)


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
    rows = page.partition("<tbody>")[2].partition("</table>")[0]
    assert '<td class="m' not in rows and "\n<td>\n" not in rows


def test_trends_begin_with_the_most_changes_and_have_a_column_for_excluded_time(
    pages: Pages, copy: Grid, tmp_path: Path
) -> None:
    page = pages[f"{NOVEMBER}/trends.html"]
    changes = [int(number) for number in re.findall(r"<tr><td>(\d+)<th", page)]
    assert len(changes) > 3 and changes == sorted(changes, reverse=True)
    assert re.search(r'<a href="SITE-\d+\.html#2026-11-\d\d">11-\d\d \d\d:\d\d:\d\d</a>', page)
    assert f'<th scope="row"><a href="{BAD_SITE}.html">{BAD_SITE}</a>' in page
    warned = "WHERE level = 'endpoint' AND status = 'WARNING'"
    execute(copy, f"UPDATE timeline_segment SET status = 'EXCLUDED' {warned}")

    page = (write_pages(copy, tmp_path / "out") / NOVEMBER / "trends.html").read_text()

    assert re.findall(r'class="name">(\w+)</th>', page) == [*FOLDED, "EXCLUDED"]


def test_the_start_page_is_a_table_of_reports_and_months_with_a_line_of_the_mean(
    pages: Pages,
) -> None:
    page = pages["index.html"]

    table = page.partition('<table class="overview">')[2].partition("</table>")[0]
    assert re.findall(r'<th scope="col">(\w+ \d+)</th>', table) == ["Oct 2026", "Nov 2026"]
    titles = r"<title>October 2026: availability \d+\.\d\d, reliability \d+\.\d\d</title>"
    assert re.search(titles, table)
    cells = re.findall(r'<td class="some">(.*?)(?=<td|</tr>)', table, re.DOTALL)
    for month, cell in zip((OCTOBER, NOVEMBER), cells, strict=True):
        of_month = pages[f"{month}/index.html"]
        missed = re.search(r"<b>(\d+) of 10</b>", of_month)
        worst = re.search(r'<th scope="row"><a href="[^>]*>([^<]+)</a>', of_month)
        assert missed and f"<b>✗ {missed[1]}</b> of 10" in cell
        assert worst and f">{worst[1]}</small>" in cell
    assert "sealed</small>" in cells[0] and "sealed" not in cells[1]
    assert "VO ops" in page and "up when CE and SRM" in page


def test_a_month_without_results_of_a_site_is_shown_as_missing_and_not_as_failed(
    small_grid: Grid, tmp_path: Path
) -> None:
    report = profile(tmp_path, ("[functions.compute]", "[functions.ce]"))
    timelines = {"SILENT CE ce1": {"00:00": "MISSING"}, "GOOD CE ce2": {"00:00": "OK"}}
    publish(small_grid.engine, report, FIRST, timelines)

    page = (write_pages(small_grid, tmp_path / "out") / "index.html").read_text()

    assert re.search(rf'<td class="{MISSING.kind}"><a [^\n]*<b>{MISSING.symbol} 1</b> of 2', page)
    assert re.search(rf'<li><span class="swatch {MISSING.kind}"[^\n]*>SILENT</a>', page)
    assert MISSED.symbol not in page.partition("<main>")[2].partition("<script>")[0]


def test_incidents_are_those_that_the_command_lists(filled: Grid, pages: Pages) -> None:
    page = pages[f"{OCTOBER}/incidents.html"]
    with reading(filled.reader) as connection:
        found = read_incidents(connection, REPORT, month_of(FIRST))

    assert found.incidents and all(incident.causes for incident in found.incidents)
    assert f"<b>{len(found.incidents)}</b> incident" in page
    assert f"<b>{duration(found.total.longest_s)}</b> the longest" in page
    rows = page.partition('id="by-site"')[2].partition("</section>")[0]
    linked = re.findall(r'<th scope="row"><a href="([^"]+)"', rows)
    assert linked == [site_page(site) for (site,) in found.by_site()]
    assert page.count('<td class="what">') == len(found.incidents)
    assert page.count("open at the end</td>") == sum(i.is_open for i in found.incidents)
    changes = pages[f"{OCTOBER}/changes.html"]
    assert "2026-10-30: results changed" in changes
    assert re.search(r"<td>50\.00000<td>75\.12345<td>60\.00000<td>-", changes)


def test_a_period_only_chooses_the_months_whose_whole_pages_are_written(
    filled: Grid, pages: Pages, tmp_path: Path
) -> None:
    days = ("--from", "2026-10-30", "--to", "2026-11-02")

    found = pages_below(write_pages(filled, tmp_path / "out", *days))

    assert found == pages
    october = found[f"{OCTOBER}/index.html"]
    shown = re.findall(r'<time datetime="2026-10-(\d\d)">', october)
    assert shown == [f"{day:02d}" for day in range(1, 32)]
    assert "2026-11-04 by boss" in october


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
