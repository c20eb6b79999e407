"""The pages of months, sites, incidents and changes, from figures in the database."""

from __future__ import annotations

import base64
import errno
import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from datetime import date, timedelta
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.spark_jobs.explain.incidents import Incident, ReportIncidents
from sam_pipeline.spark_jobs.explain.results import NOT_READ, NOT_STORED
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Downtime, Exclusion
from sam_pipeline.spark_jobs.pages import tree
from sam_pipeline.spark_jobs.pages.lists import incidents_page
from sam_pipeline.spark_jobs.pages.month import Month
from sam_pipeline.spark_jobs.pages.writer import PageFiles, site_page
from sam_pipeline.spark_jobs.rules.days import DAY_S, month_of
from sam_pipeline.spark_jobs.rules.figures import Member
from sam_pipeline.spark_jobs.rules.levels import SITE
from sam_pipeline.spark_jobs.rules.seconds import Seconds
from sam_pipeline.spark_jobs.runs.published import DayFigure
from sam_pipeline.spark_jobs.runs.summary import PeriodTargets
from sam_pipeline.sql.database.engine import name_of, writing
from tests.integration.spark_jobs.conftest import SamReport
from tests.support.reports import bad_month
from tests.support.reports.database import DAY, Grid, profile, url_of
from tests.support.reports.month import insert, site_name
from tests.support.reports.pages import (
    BAD_SITE,
    FIRST,
    LAST,
    MARKED_DAY,
    REPORT,
    SIZE,
    add_candidate,
    fill,
    section_of,
    write_large_pages,
)
from tests.support.reports.published_days import publish


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grid]:
    directory = tmp_path_factory.mktemp("filled")
    grid = fill(f"sqlite:///{directory}/sam.db", directory)
    yield grid
    grid.dispose()


@pytest.fixture
def copy(filled: Grid, tmp_path: Path) -> Iterator[Grid]:
    """A copy of the database that the test may change."""
    with closing(sqlite3.connect(name_of(filled.engine).removeprefix("sqlite:///"))) as connection:
        connection.execute("VACUUM INTO ?", [str(tmp_path / "sam.db")])
    grid = Grid(f"sqlite:///{tmp_path}/sam.db")
    yield grid
    grid.dispose()


def write_pages(grid: Grid, out: Path, *options: object) -> Path:
    period = options or ("--from", FIRST, "--to", LAST)
    out.parent.mkdir(parents=True, exist_ok=True)
    SamReport(url_of(grid.engine), out.parent)("-q", "pages", *period, "--out", out)
    return out


@pytest.fixture(scope="session")
def both(filled: Grid, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pages(filled, tmp_path_factory.mktemp("both") / "out")


@pytest.fixture(scope="session")
def pages(both: Path) -> dict[str, str]:
    return pages_below(both)


def pages_below(out: Path) -> dict[str, str]:
    return {
        str(path.relative_to(out)): path.read_text(encoding="utf-8")
        for path in sorted(out.rglob("*.html"))
    }


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
        names = {name for name in pages if name.startswith(month) and "/days/" not in name}
        kinds = ["index", "trends", "incidents", "changes", "groups/federation", "groups/region"]
        kinds += ["revisions"] * (month == OCTOBER)  # it is sealed
        assert {f"{month}/{kind}.html" for kind in kinds} <= names
        assert len(names) == len(kinds) + SIZE.sites
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


PRIVATE = (r"\bada\b", "nightly", "boss", "Jane", "jane@", "key:nagios", r"m-\d{10}-")


def test_public_pages_name_no_person_publisher_or_message(copy: Grid, tmp_path: Path) -> None:
    with writing(copy.loader) as connection:
        contact = {"siteName": BAD_SITE, "contact": "Jane <jane@example.org>", "publisher": "key:x"}
        insert(connection, "siteContact", [{**contact, "timestamp": f"{FIRST}T00:00:00Z"}])
    with writing(copy.engine) as connection:
        add_candidate(connection, 77, date(2026, 10, 31))
        exclusion = asdict(Exclusion(4, SITE, "", "", BAD_SITE, "", "", 0, 2**33, "new", "ada"))
        statement = text("UPDATE run SET exclusions = :exclusions WHERE run_id = 77")
        connection.execute(statement, {"exclusions": json.dumps([exclusion])})
    both = ("--from", FIRST, "--to", LAST)
    year = ("--year", "2026")

    found: dict[bool, set[tuple[str, str]]] = {}
    for public in (False, True):
        out, option = tmp_path / f"{public}/out", ["--public"] * public
        for period in (both, year):
            write_pages(copy, out, *period, *option)
        pages = pages_below(out)
        found[public] = {
            (word, name)
            for name, page in pages.items()
            for word in PRIVATE
            if re.search(word, page)
        }

    assert {word for word, _ in found[False]} == set(PRIVATE)
    assert {name.split("/")[-1] for _, name in found[False]} >= {
        *("index.html", "changes.html", "revisions.html", "2026.html", f"{BAD_SITE}.html")
    }
    assert found[True] == set()
    bad = pages[f"{NOVEMBER}/{BAD_SITE}.html"]
    assert "exclusion 3 of monitoring host m1" in bad and "its clock was wrong" in bad
    # They are written again where the others were.
    write_pages(copy, tmp_path / "False/out", *both, "--public")
    assert "Jane" not in (tmp_path / f"False/out/{NOVEMBER}/{BAD_SITE}.html").read_text()


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
    refused = sam_report("pages", "--from", FIRST, "--to", LAST, "--out", tmp_path, code=74)

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
    month = Month(REPORT, whole, "large", [], None, PeriodTargets(profile(tmp_path)))

    of_month, of_site = write_large_pages(tmp_path, tmp_path)
    PageFiles(tmp_path).write("i.html", "incidents.html", view=incidents_page(found), month=month)

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


# Which pages are written again --------------------------------------------------------------------


GOOD, BAD = {"00:00": "OK"}, {"00:00": "OK", "06:00": "CRITICAL"}


def times(out: Path) -> dict[str, int]:
    """The time of each file, in nanoseconds; a file that is replaced gets another one."""
    files = (path for path in out.rglob("*") if path.is_file())
    return {str(path.relative_to(out)): path.stat().st_mtime_ns for path in files}


def test_only_pages_that_change_or_were_damaged_are_replaced(
    copy: Grid, both: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(both, tmp_path / "pages" / "out"))
    page = out / OCTOBER / f"{BAD_SITE}.html"
    whole, before = page.read_text(), times(out)

    def replaced() -> set[str]:
        nonlocal before
        write_pages(copy, out)
        old, before = before, times(out)
        return {name for name, time in before.items() if old.get(name) != time}

    assert replaced() == set()
    for damaged in (None, "x", "x" * len(whole.encode())):
        page.unlink() if damaged is None else page.write_text(damaged)
        assert replaced() == {f"{OCTOBER}/{BAD_SITE}.html"}
        assert page.read_text() == whole
    with writing(copy.engine) as connection:
        add_candidate(connection, 77, date(2026, 10, 31))
    # Each page of the month says that something waits for the next seal.
    assert replaced() == {name for name in before if name.startswith(OCTOBER)}
    assert "would change with the next seal" in page.read_text()
    command = ["sha256sum", "--check", "--strict", "--quiet", "pages.sha256"]
    checked = subprocess.run(command, cwd=out / OCTOBER, capture_output=True, text=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_a_month_added_later_is_linked_from_the_month_before_and_the_start_page(
    filled: Grid, both: Path, tmp_path: Path
) -> None:
    out = write_pages(filled, tmp_path / "out", "--month", "2026-10")
    alone = (out / OCTOBER / "index.html").read_text()

    write_pages(filled, out, "--month", "2026-11")

    assert 'rel="next"' not in alone
    assert pages_below(out) == pages_below(both)


def test_pages_drawn_in_several_processes_are_the_same(
    filled: Grid, both: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "_SITES_AT_ONCE", 3)

    out = write_pages(filled, tmp_path / "out")

    for path in both.rglob("*"):
        if path.is_file():
            assert (out / path.relative_to(both)).read_bytes() == path.read_bytes()


def test_of_a_chosen_site_only_its_pages_are_written(
    engine: Engine, tmp_path: Path, sam_report: SamReport
) -> None:
    report = profile(tmp_path, ("functions.compute", "functions.ce"))
    months = ("--from", "2026-10-31", "--to", DAY, "--out", "pages")
    publish(engine, report, date(2026, 10, 31), {"B CE h2": GOOD})
    publish(engine, report, DAY, {"A CE h1": GOOD, "B CE h2": GOOD})
    sam_report("pages", *months)
    before = pages_below(tmp_path / "pages")
    publish(engine, report, DAY, {"A CE h1": BAD, "B CE h2": BAD})

    printed = sam_report("pages", *months, "--site", "A").out

    path = "test/2026-11/A.html"
    assert printed.splitlines() == [f"pages/{path}"]
    after = pages_below(tmp_path / "pages")
    assert {name for name in after if after[name] != before.get(name)} == {path}
    sam_report("pages", *months)
    assert pages_below(tmp_path / "pages")[path] == after[path]
    one = ("pages", "--day", DAY, "--out", "one")
    assert "did you mean A" in sam_report(*one, "--site", "a", code=64).err
    assert not (tmp_path / "one").exists()
    assert sam_report(*one, "--site", "A", "--json").json == {"index": None, "pages": [path]}


# The page of a site that failed on 18 days --------------------------------------------------------


def test_a_month_with_too_many_failing_results_says_so_and_where_to_see_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = bad_month.fill(f"sqlite:///{tmp_path}/sam.db", tmp_path)
    monkeypatch.setattr(tree, "MAX_RESULTS_OF_SITE", 2 * bad_month.RESULTS_A_DAY)

    out = write_pages(grid, tmp_path / "out", "--month", "2026-10")

    grid.dispose()
    page = (out / OCTOBER / f"{bad_month.BAD}.html").read_text()
    assert "until 18 October, 06:00" in page
    assert NOT_STORED not in page
    assert NOT_READ in section_of(page, bad_month.FIRST_BAD)
    assert "checksum mismatch" in section_of(page, bad_month.LAST_BAD)


def test_a_time_without_results_names_the_last_one_on_the_page_and_in_explain_alike(
    engine: Engine, tmp_path: Path, sam_report: SamReport
) -> None:
    grid = Grid(engine)
    changes = (
        ('"off"', "14400"),
        ("functions.compute", "functions.ce"),
        ("ping", "pong"),
        ("submit", "ping"),
    )
    report = profile(tmp_path, *changes)
    yesterday = DAY - timedelta(days=1)
    grid.result("CE h1 ping", "21:00", "OK", day=yesterday)
    for time in ("01:00", "05:00", "08:00"):
        grid.result("CE h1 ping", time, "OK", messageId=f"of-{time}")
    grid.result("CE h1 ping", "10:00", "OK", monitoringHost="m1")
    grid.result("CE h1 ping", "13:00", "OK", monitoringHost="m2")
    grid.dispose()
    of_day = {"00:00": "OK", "12:00": "MISSING", "13:00": "OK", "17:00": "MISSING"}
    run_id = publish(engine, report, DAY, {"A CE h1": of_day})
    publish(engine, report, DAY + timedelta(days=1), {"A CE h1": {"00:00": "MISSING"}})
    announced = [asdict(Exclusion(1, MONITORING_HOST, "m1", "", "", "", "", 0, 2**33, "", "ada"))]
    with writing(engine) as connection:
        statement = text("UPDATE run SET exclusions = :exclusions WHERE run_id = :run_id")
        connection.execute(statement, {"exclusions": json.dumps(announced), "run_id": run_id})

    sam_report("pages", "--day", DAY, "--out", "out")
    page = (tmp_path / "out/test/2026-11/A.html").read_text()

    for day, words in (
        (DAY, "no result for 5 h; the last one, 2026-11-14T08:00:00Z OK OK says <ping> (of-08:00)"),
        (DAY, "no result for 11 h; the last one, 2026-11-14T13:00:00Z OK"),
        (DAY + timedelta(days=1), "no result for 1 d 11 h; the last one, 2026-11-14T13:00:00Z OK"),
    ):
        explained = sam_report("explain", "--day", day, "--site", "A").out
        assert words in " ".join(explained.split())
        assert words in unescape(section_of(page, day))
    assert "no result since" not in page


def test_the_page_of_a_month_says_who_missed_why_and_what_happened_to_many(
    engine: Engine, tmp_path: Path, sam_report: SamReport
) -> None:
    report = profile(tmp_path, ("functions.compute", "functions.ce"))
    before = date(2026, 10, 31)
    quarter = {"00:00": "OK", "09:30": "CRITICAL", "09:45": "OK"}
    of_day = {f"{site} CE h{site.lower()}": quarter for site in "ABCD"}
    failing = {"00:00": "OK", "01:00": "CRITICAL"}
    others = {"E CE e": failing, "F CE f": {"00:00": "DOWNTIME"}, "G CE g": {"00:00": "MISSING"}}
    run_id = publish(engine, report, DAY, {**of_day, **others}, [Member("tier", "1", "E", 1)])
    publish(engine, report, before, {"E CE e": GOOD})
    downtime = Downtime("G3", "F", "", "", 0, 2**31, "SCHEDULED", "OUTAGE", "A new room")
    with writing(engine) as connection:
        announced = {"downtimes": json.dumps([asdict(downtime)]), "run_id": run_id}
        statement = "UPDATE run SET downtimes = :downtimes WHERE run_id = :run_id"
        connection.execute(text(statement), announced)
    grid = Grid(engine)
    for site in "abcd":
        said = {"summaryData": f"no route to {site}.org", "monitoringHost": "nagios2"}
        grid.result(f"CE h{site} ping", "09:30", "CRITICAL", **said)
    grid.result("CE e ping", "01:00", "CRITICAL", summaryData="disk <full>")
    grid.dispose()

    sam_report("pages", "--day", DAY, "--out", "out")
    page = (tmp_path / "out/test/2026-11/index.html").read_text()

    top = " ".join(re.sub("<[^>]*>", "", page[: page.index('id="days"')]).split())
    for words in (
        "E: availability 4.17 is below 80; reliability 4.17 is below 85.",
        "23 h from 14 November, 01:00, open at the end: disk &lt;full&gt; (CE ping)",
        "F: availability 0.00 is below 80. Announced downtime for 1 d: G3: A new room",
        "G: unknown 100.00 is above 10. Missing 100.0 % of the time, most on 14 November",
        "14 November, 09:30 to 09:45: 4 sites, measured by nagios2: no route to *",
    ):
        assert words in top
    assert "Change: of the availability, against October." in page
    row = page[page.index('data-groups="tier 1"') :]
    assert row[: row.index("</tr>") if "</tr>" in row else 400].count("<td>-95.83") == 1


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
        ("ASTER-T2", f"did you mean {bad_month.GOOD}"),
    ):
        error = sam_report("explain", "--day", bad_month.LAST_BAD, "--site", site, code=64).err
        assert f"no site {site} on {bad_month.LAST_BAD}: " in error and fact in error
