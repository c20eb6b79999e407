"""The pages, from figures that are inserted directly into the database."""

from __future__ import annotations

import base64
import errno
import os
import re
from collections.abc import Iterator
from datetime import date
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from sam_pipeline.schema.program.wording import duration
from sam_pipeline.spark_jobs.cli import main
from sam_pipeline.spark_jobs.explain.incidents.figures import ReportIncidents
from sam_pipeline.spark_jobs.explain.incidents.incident import Incident
from sam_pipeline.spark_jobs.explain.incidents.reader import read_incidents
from sam_pipeline.spark_jobs.pages.incidents import incidents_view
from sam_pipeline.spark_jobs.pages.month import Month
from sam_pipeline.spark_jobs.pages.site_tree import write_site
from sam_pipeline.spark_jobs.pages.verdict import (
    DOWNTIME,
    MISSED,
    MISSING,
    NOT_COMPUTED,
    NOT_EXPECTED,
)
from sam_pipeline.spark_jobs.pages.writer import PageFiles, group_page, site_page
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, month_of
from sam_pipeline.spark_jobs.rules.seconds import Seconds
from sam_pipeline.spark_jobs.rules.statuses import FOLDED
from sam_pipeline.spark_jobs.runs.published import DayFigure
from sam_pipeline.spark_jobs.runs.targets import PeriodTargets
from sam_pipeline.sql.database.engine import name_of, reading, writing
from tests.support.reports.database import Grid, profile
from tests.support.reports.month import Size, insert, site_name, write_month
from tests.support.reports.pages import (
    BAD_SITE,
    FIRST,
    LAST,
    MARKED_DAY,
    OCTOBER,
    PERIOD,
    REPORT,
    SIZE,
    add_candidate,
    fill,
    section_of,
    write_large_pages,
)
from tests.support.reports.published_days import Timeline, publish

OCTOBER_PATH, NOVEMBER_PATH = "test/2026-10", "test/2026-11"
MONTH_BOUND, SITE_BOUND = 500_000, 1_500_000

Pages = dict[str, str]


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grid]:
    directory = tmp_path_factory.mktemp("pages")
    grid = fill(f"sqlite:///{directory}/sam.db", directory)
    yield grid
    grid.dispose()


@pytest.fixture(scope="module")
def pages(grid: Grid, tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return written(grid, tmp_path_factory.mktemp("out"))


def written(grid: Grid, out: Path, period: Period = PERIOD) -> Pages:
    with reading(grid.reader) as connection:
        write_site(connection, None, period, out)
    return pages_below(out)


def config_of(grid: Grid, directory: Path) -> Path:
    config = directory / "sam.toml"
    config.write_text(f'[database]\nurl = "{name_of(grid.engine)}"\n')
    return config


def pages_below(out: Path) -> Pages:
    return {
        str(path.relative_to(out)): path.read_text(encoding="utf-8")
        for path in sorted(out.rglob("*.html"))
    }


def test_each_month_has_its_pages(pages: Pages) -> None:
    for month in (OCTOBER_PATH, NOVEMBER_PATH):
        names = {name for name in pages if name.startswith(month)}
        expected = ["index.html", "trends.html", "incidents.html", "changes.html"]
        expected += ["groups/federation.html"]
        assert {f"{month}/{name}" for name in expected} <= names
        assert len(names) == 6 + SIZE.sites
    assert "index.html" in pages


def test_links_lead_to_existing_pages_and_days(pages: Pages) -> None:
    parsed = {name: Page(page) for name, page in pages.items()}

    for name, page in parsed.items():
        assert page.outside == [] and page.loaded == 0
        for link in page.links:
            path, _, anchor = link.partition("#")
            parts = (name if not path else f"{name}/../{path}").split("/")
            target = parsed[str(Path(*_resolved(parts)))]
            assert not anchor or anchor in target.ids, f"{name}: {link}"


def test_text_of_probes_and_users_is_escaped(pages: Pages) -> None:
    bad = pages[f"{NOVEMBER_PATH}/{BAD_SITE}.html"]

    assert "&lt;script&gt;alert(" in bad and "<script>alert" not in bad
    odd = [page for name, page in pages.items() if "SUM-A1" in name]
    assert len(odd) == 2
    assert "<h1>=SUM(A1) &lt;b&gt;&amp;/../x</h1>" in odd[0]


def test_pages_allow_only_the_script_whose_hash_they_name(pages: Pages) -> None:
    for page in pages.values():
        scripts = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
        allowed = [
            base64.b64encode(sha256(script.encode()).digest()).decode() for script in scripts
        ]
        [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
        assert len(scripts) == 1
        assert policy.startswith("default-src 'none';")
        assert f"script-src 'sha256-{allowed[0]}';" in policy


def test_a_site_named_like_another_page_has_a_page_of_its_own(pages: Pages) -> None:
    assert "<h1>index</h1>" in pages[f"{NOVEMBER_PATH}/{site_page('index')}"]


def test_sites_that_miss_a_target_come_first_and_the_worst_is_always_on_top(pages: Pages) -> None:
    page = pages[f"{NOVEMBER_PATH}/index.html"]

    missed, _, met = page.partition("Targets met:")
    for rows, figure in ((missed, r'<td class="x[ d]*">✗(\d+\.\d+)'), (met, r"<td.*>✓(\d+\.\d+)")):
        figures = [float(figure) for figure in re.findall(figure, rows)]
        assert len(figures) > 1
        assert figures == sorted(figures)
    assert BAD_SITE in missed and "SITE-004" in met
    assert re.search(r"<b>\d+ of 10</b> sites", page)


def test_a_red_day_leads_to_the_failing_results(pages: Pages) -> None:
    page = pages[f"{NOVEMBER_PATH}/index.html"]

    link = re.search(
        rf'<td class="x[ d]*"><a href="({BAD_SITE}.html#(2026-11-\d\d))">✗\d+</a>', page
    )
    assert link
    site = pages[f"{NOVEMBER_PATH}/{BAD_SITE}.html"]
    day = section_of(site, date.fromisoformat(link[2]))
    assert "no answer" in day
    assert "message m-" in day
    assert f"--report test --day {link[2]} --site {BAD_SITE}" in day


def test_a_day_that_was_ok_all_the_time_is_an_empty_cell_without_a_link(pages: Pages) -> None:
    page = pages[f"{NOVEMBER_PATH}/index.html"]

    assert "\n<td>\n" in page and "empty: 100" in page
    assert not re.search(r"<td[^>]*>✓?100\n", page)


def test_a_day_on_which_a_site_was_not_expected_is_not_called_not_computed(
    grid: Grid, tmp_path: Path
) -> None:
    rows = {}
    with writing(grid.engine) as connection:
        for table in ("site_figure", "group_site"):
            of_site = f"FROM {table} WHERE site = 'SITE-004' AND run_id = 1"
            rows[table] = connection.execute(text(f"SELECT * {of_site}")).mappings().all()
            connection.execute(text(f"DELETE {of_site}"))
    try:
        page = written(grid, tmp_path)[f"{OCTOBER_PATH}/index.html"]
    finally:
        with writing(grid.engine) as connection:
            for table, of_table in rows.items():
                insert(connection, table, of_table)

    for verdict in (NOT_EXPECTED, NOT_COMPUTED):
        assert f"{verdict.symbol}</span> {verdict.meaning}" in page
    row = page.partition(">SITE-004<")[2].partition("<tr")[0]
    days = re.findall(r'<td(?: class="(.)")?>', row)[3:]
    assert "".join(kind or "m" for kind in days[:30]) == 27 * NOT_COMPUTED.kind + "emm"


def test_a_site_below_its_target_only_through_announced_downtime_is_listed_after_all_failures(
    tmp_path: Path,
) -> None:
    grid = Grid(f"sqlite:///{tmp_path}/sam.db")
    with writing(grid.engine) as connection:
        month = write_month(connection, profile(tmp_path), date(2026, 11, 1), Size(12, 3, 1))
        connection.execute(
            text("UPDATE site_figure SET ok_s = 0, downtime_s = 86400 WHERE site = 'SITE-003'")
        )

    page = written(grid, tmp_path / "out", month)[f"{NOVEMBER_PATH}/index.html"]

    grid.dispose()
    bands = re.findall(r'<tr class="band">.*?>([^<]*): (\d+)</th>', page)
    assert [title for title, _ in bands] == [
        "Targets missed",
        f"Availability {DOWNTIME.meaning}",
        "Targets met",
    ]
    assert bands[1][1] == "1"
    row = page.partition(">SITE-003<")[2].partition("<tr")[0]
    assert f'<td class="{DOWNTIME.kind}">{DOWNTIME.symbol}0.00' in row
    assert row.count(f"{DOWNTIME.symbol}0</a>") == 3
    assert f'class="{MISSED.kind}' not in row


def test_unknown_and_missing_are_one_small_text_beside_not_known(pages: Pages) -> None:
    page = pages[f"{NOVEMBER_PATH}/index.html"]

    assert re.search(r"\n<td[^>]*>(✗ )?\d+\.\d <small>(\?\d+\.\d ?)?(∅\d+\.\d)?</small>\n", page)
    heads = re.findall(r'<th scope="col">([A-Z].*?)</th>', page.partition("</thead>")[0])
    assert len(heads) == 4


def test_a_long_name_of_a_site_is_whole_in_the_title_of_its_link(pages: Pages) -> None:
    page = pages[f"{NOVEMBER_PATH}/index.html"]

    [title] = re.findall(r'title="(ÉCOLE [^"]*)"', page)
    assert f">{title}</a>" in page


def test_an_open_day_shows_its_end(pages: Pages) -> None:
    for name in ("index.html", f"{NOVEMBER_PATH}/index.html", f"{NOVEMBER_PATH}/{BAD_SITE}.html"):
        assert f"until {LAST} 12:00" in pages[name]
    assert "until 12:00" in pages[f"{NOVEMBER_PATH}/index.html"]
    assert "until" not in pages[f"{OCTOBER_PATH}/{BAD_SITE}.html"].partition("<body>")[2]


def test_downtimes_and_exclusions_are_drawn_and_listed(pages: Pages) -> None:
    page = pages[f"{NOVEMBER_PATH}/{BAD_SITE}.html"]
    day = section_of(page, MARKED_DAY)

    for kind in ("sc", "sa", "se"):
        assert f'class="{kind}" d="M720 0h120"' in day
    assert "new &lt;kernel&gt; (" in day
    assert "does not count" in day
    for reason in ("the probe was wrong", "power cut", "its clock was wrong"):
        assert reason in day


def test_an_excluded_monitoring_host_is_listed_only_at_sites_that_it_measured(pages: Pages) -> None:
    listed = {
        name
        for name, page in pages.items()
        if name.startswith(NOVEMBER_PATH) and "its clock was wrong" in page
    }

    assert f"{NOVEMBER_PATH}/{BAD_SITE}.html" in listed
    assert f"{NOVEMBER_PATH}/{site_name(8)}.html" not in listed


def test_unknown_and_missing_have_columns_and_colours_of_their_own(pages: Pages) -> None:
    page = pages[f"{NOVEMBER_PATH}/{BAD_SITE}.html"]

    assert '<th scope="col" class="name">UNKNOWN</th>' in page
    assert '<th scope="col" class="name">MISSING</th>' in page
    style = page.partition("<style>")[2].partition("</style>")[0]
    assert (
        len({re.search(rf"\.{kind} {{ stroke: ([^;]+);", style)[1] for kind in ("un", "mi")}) == 2
    )  # type: ignore[index]


def test_groups_show_how_many_of_their_sites_have_a_figure(pages: Pages) -> None:
    page = pages[f"{NOVEMBER_PATH}/groups/federation.html"]

    assert re.search(r"FEDERATION-00: \d+\.\d\d % .*10 of 10", page)
    assert f'href="../{BAD_SITE}.html"' in page


def test_a_group_below_its_coverage_target_is_never_green(grid: Grid, tmp_path: Path) -> None:
    with writing(grid.engine) as connection:
        connection.execute(
            text(
                "INSERT INTO group_site (run_id, group_type, group_name, site, weight)"
                " SELECT run_id, 'VO', 'ops', site, 0 FROM site_figure WHERE site = 'SITE-004'"
                " UNION ALL SELECT run_id, 'VO', 'ops', 'SILENT', 0 FROM run"
            )
        )
        connection.execute(
            text(
                "INSERT INTO site_figure (run_id, site, ok_s, warning_s, critical_s, unknown_s,"
                " missing_s, downtime_s, excluded_s)"
                " SELECT run_id, 'SILENT', 0, 0, 0, 0, 86400, 0, 0 FROM run"
            )
        )
    try:
        page = written(grid, tmp_path)[f"{NOVEMBER_PATH}/{group_page('VO')}"]
    finally:
        with writing(grid.engine) as connection:
            connection.execute(text("DELETE FROM group_site WHERE group_type = 'VO'"))
            connection.execute(text("DELETE FROM site_figure WHERE site = 'SILENT'"))

    assert '<td class="p">!100.00' in page
    assert '<td class="bad">✗ 1 of 2' in page
    rows = page.partition("<tbody>")[2].partition("</table>")[0]
    assert '<td class="m' not in rows and "\n<td>\n" not in rows


def test_trends_begin_with_the_endpoint_with_the_most_changes(pages: Pages) -> None:
    page = pages[f"{NOVEMBER_PATH}/trends.html"]

    changes = [int(number) for number in re.findall(r"<tr><td>(\d+)<th", page)]
    assert len(changes) > 3
    assert changes == sorted(changes, reverse=True)
    assert re.search(r'<a href="SITE-\d+\.html#2026-11-\d\d">11-\d\d \d\d:\d\d:\d\d</a>', page)
    assert f'<th scope="row"><a href="{BAD_SITE}.html">{BAD_SITE}</a>' in page


def test_excluded_time_has_a_column_in_the_trends(grid: Grid, tmp_path: Path) -> None:
    states = "UPDATE timeline_segment SET status = '{}' WHERE level = 'endpoint' AND status = '{}'"
    with writing(grid.engine) as connection:
        connection.execute(text(states.format("EXCLUDED", "WARNING")))
    try:
        page = written(grid, tmp_path)[f"{NOVEMBER_PATH}/trends.html"]
    finally:
        with writing(grid.engine) as connection:
            connection.execute(text(states.format("WARNING", "EXCLUDED")))

    heads = re.findall(r'class="name">(\w+)</th>', page)
    assert heads == [*FOLDED, "EXCLUDED"]


def test_the_anchor_of_a_group_is_its_name_and_the_worst_group_is_on_top(pages: Pages) -> None:
    page = pages[f"{NOVEMBER_PATH}/groups/region.html"]

    rows = re.findall(
        r'<th scope="row"><a href="#(group-REGION-\d)"[^>]*>(REGION-\d)</a>\n(.*)', page
    )
    assert all(anchor == f"group-{name}" and f'id="{anchor}"' in page for anchor, name, _ in rows)
    missed = page.partition("Targets missed")[2].partition("Targets met")[0]
    for part in (missed, page.partition("Targets met")[2]):
        by_symbol = re.findall(r"\n<td class=\"\w[ d]*\">([✗!✓])(\d+\.\d\d)\n", part)
        figures = [("✗!✓".index(symbol), float(figure)) for symbol, figure in by_symbol]
        assert figures and figures == sorted(figures)


def test_the_start_page_is_a_table_of_reports_and_months_with_a_line_of_the_mean(
    pages: Pages,
) -> None:
    page = pages["index.html"]

    table = page.partition('<table class="overview">')[2].partition("</table>")[0]
    assert re.findall(r'<th scope="col">(\w+ \d+)</th>', table) == ["Oct 2026", "Nov 2026"]
    assert re.search(
        r"<title>October 2026: availability \d+\.\d\d, reliability \d+\.\d\d</title>", table
    )
    october, november = re.findall(r'<td class="some">(.*?)(?=<td|</tr>)', table, re.DOTALL)
    for month, cell in ((OCTOBER_PATH, october), (NOVEMBER_PATH, november)):
        of_month = pages[f"{month}/index.html"]
        missed = re.search(r"<b>(\d+) of 10</b>", of_month)
        worst = re.search(r'<th scope="row"><a href="[^>]*>([^<]+)</a>', of_month)
        assert missed and f"<b>✗ {missed[1]}</b> of 10" in cell
        assert worst and f">{worst[1]}</small>" in cell
    assert "sealed</small>" in october and "sealed" not in november
    assert "VO ops" in page and "up when CE and SRM" in page


def test_a_month_without_results_of_a_site_is_shown_as_missing_and_not_as_failed(
    tmp_path: Path,
) -> None:
    silent = Grid(f"sqlite:///{tmp_path}/sam.db")
    report = profile(tmp_path, ("[functions.compute]", "[functions.ce]"))
    timelines: dict[str, Timeline] = {
        "SILENT CE ce1": {"00:00": "MISSING"},
        "GOOD CE ce2": {"00:00": "OK"},
    }
    publish(silent.engine, report, FIRST, timelines)

    page = written(silent, tmp_path / "out", Period(FIRST, FIRST))["index.html"]

    silent.dispose()
    assert re.search(rf'<td class="{MISSING.kind}"><a [^\n]*<b>{MISSING.symbol} 1</b> of 2', page)
    assert re.search(rf'<li><span class="swatch {MISSING.kind}"[^\n]*>SILENT</a>', page)
    assert MISSED.symbol not in page.partition("<main>")[2].partition("<script>")[0]


def test_incidents_are_those_that_the_command_lists(grid: Grid, pages: Pages) -> None:
    page = pages[f"{OCTOBER_PATH}/incidents.html"]
    with reading(grid.reader) as connection:
        found = read_incidents(connection, REPORT, month_of(FIRST))

    assert found.incidents and all(incident.causes for incident in found.incidents)
    assert f"<b>{len(found.incidents)}</b> incident" in page
    assert f"<b>{duration(found.total.longest_s)}</b> the longest" in page
    rows = page.partition('id="by-site"')[2].partition("</section>")[0]
    assert re.findall(r'<th scope="row"><a href="([^"]+)"', rows) == [
        site_page(site) for (site,) in found.by_site()
    ]
    assert page.count('<td class="what">') == len(found.incidents)
    assert page.count("open at the end</td>") == sum(i.is_open for i in found.incidents)


def test_incidents_of_500_sites_make_a_small_page(tmp_path: Path) -> None:
    whole = month_of(FIRST)
    sites = [site_name(number) for number in range(500)]
    figures = [DayFigure(day, (site,), Seconds(ok=DAY_S)) for site in sites for day in whole.days()]
    incidents = [
        Incident(site, start, start + 1800, False, False)
        for number, site in enumerate(sites)
        for start in range(whole.start + number, whole.end, DAY_S)
    ]
    found = ReportIncidents(REPORT, whole, [], incidents, figures)
    targets = PeriodTargets(profile(tmp_path))
    month = Month(REPORT, whole, "large", [], "", targets)

    PageFiles(tmp_path).write("i.html", "incidents.html", view=incidents_view(found), month=month)

    assert (tmp_path / "i.html").stat().st_size < MONTH_BOUND


def test_changes_are_listed_with_old_and_new_figures_and_reason(pages: Pages) -> None:
    page = pages[f"{OCTOBER_PATH}/changes.html"]

    assert "2026-10-30: results changed" in page
    assert re.search(r"<td>50\.00000<td>75\.12345<td>60\.00000<td>-", page)


def test_a_candidate_is_shown_only_on_the_page_of_changes(grid: Grid, tmp_path: Path) -> None:
    before = written(grid, tmp_path / "before")
    with writing(grid.engine) as connection:
        add_candidate(connection, 77, date(2026, 10, 31))
    try:
        after = written(grid, tmp_path / "after")
    finally:
        with writing(grid.engine) as connection:
            for table in ("candidate_run", "report_change_row", "run"):
                connection.execute(text(f"DELETE FROM {table} WHERE run_id = 77"))

    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {f"{OCTOBER_PATH}/changes.html"}
    assert "Not published" in after[f"{OCTOBER_PATH}/changes.html"]
    assert "late results" in after[f"{OCTOBER_PATH}/changes.html"]
    assert "2026-11-04 by boss" in before[f"{OCTOBER_PATH}/index.html"]


@pytest.mark.parametrize(
    "period", [("--day", "2026-10-30"), ("--from", "2026-10-30", "--to", "2026-11-02")]
)
def test_a_period_only_chooses_the_months_whose_whole_pages_are_written(
    grid: Grid, pages: Pages, tmp_path: Path, period: tuple[str, ...]
) -> None:
    config = config_of(grid, tmp_path)
    out = tmp_path / "out"

    assert main(["--config", str(config), "-q", "site", *period, "--out", str(out)]) == 0

    found = pages_below(out)
    whole = pages if "--to" in period else written(grid, tmp_path / "month", OCTOBER)
    assert found == whole
    october = found[f"{OCTOBER_PATH}/index.html"]
    assert re.findall(r'<time datetime="2026-10-(\d\d)">', october) == [
        f"{day:02d}" for day in range(1, 32)
    ]
    assert "2026-11-04 by boss" in october
    of_start = re.findall(r"<b>✗ (\d+)</b> of 10", found["index.html"])
    months = (OCTOBER_PATH, NOVEMBER_PATH) if "--to" in period else (OCTOBER_PATH,)
    for month, missed in zip(months, of_start, strict=True):
        assert f"<b>{missed} of 10</b> sites miss" in found[f"{month}/index.html"]


def test_both_databases_give_the_same_pages(
    pages: Pages, postgres_url: str, tmp_path: Path
) -> None:
    grid = fill(postgres_url, tmp_path)

    from_postgresql = written(grid, tmp_path / "out")

    grid.dispose()
    assert from_postgresql.keys() == pages.keys()
    assert [name for name in pages if from_postgresql[name] != pages[name]] == []


def test_a_full_disk_exits_74_and_leaves_the_old_pages(
    grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    new = written(grid, out)
    for name in new:
        (out / name).write_text("an old page")
    config = config_of(grid, tmp_path)
    opened = os.open
    room = iter(range(7))

    def full(path: Any, *arguments: Any, **more: Any) -> int:
        if str(path).endswith(".new") and next(room, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return opened(path, *arguments, **more)

    monkeypatch.setattr("os.open", full)
    command = ["--config", str(config), "site", "--from", str(FIRST), "--to", str(LAST)]

    code = main([*command, "--out", str(out)])

    monkeypatch.undo()
    assert code == 74
    error = capsys.readouterr().err
    assert "No space left on device" in error
    assert "make room" in error
    after = pages_below(out)
    assert {name for name in new if after[name] != "an old page"} == {
        name for name in new if after[name] == new[name]
    }
    assert list(after.values()).count("an old page") == len(new) - 7


def test_large_pages_stay_small(tmp_path: Path) -> None:
    pages = write_large_pages(tmp_path, tmp_path)

    assert pages[0].stat().st_size < MONTH_BOUND
    assert pages[1].stat().st_size < SITE_BOUND
    assert pages[0].read_text().count('<tr><th scope="row"><a') == 500
    assert pages[1].read_text().count('<svg class="l"') == 31 * (1 + 25)


def _resolved(parts: list[str]) -> list[str]:
    resolved: list[str] = []
    for part in parts:
        if part == "..":
            resolved.pop()
        else:
            resolved.append(part)
    return resolved


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
