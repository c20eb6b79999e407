"""The pages in Chromium: offline, with and without scripts, accessible, printable and fast."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from sam_pipeline.spark_jobs.pages.tree import write_pages
from sam_pipeline.spark_jobs.pages.writer import TEMPLATES
from sam_pipeline.sql.database.engine import reading
from tests.services import missing
from tests.support.reports.pages import BAD_SITE, MARKED_DAY, PERIOD, fill, write_large_pages

MONTH = "test/2026-11"
KINDS = (
    "index.html",
    f"{MONTH}/index.html",
    f"{MONTH}/{BAD_SITE}.html",
    f"{MONTH}/groups/federation.html",
    f"{MONTH}/trends.html",
    f"{MONTH}/incidents.html",
    "test/2026-10/changes.html",
    "test/2026-10/revisions.html",
)
# Of processor time, so that a busy machine changes little; where all is quiet less than a second.
DRAWN_WITHIN_S = 3
# The page had 18 nearly equal chapters of 1000 pixels each.
AXE = files("axe_playwright_python") / "axe.min.js"
DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
OVERFLOW = "document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        missing("Chromium", "apt-get install chromium")
    with sync_playwright() as playwright:
        # Tests run as root, in containers with little shared memory.
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pages")
    grid = fill(f"sqlite:///{directory}/sam.db", directory)
    with reading(grid.reader) as connection:
        write_pages(connection, None, PERIOD, directory / "out")
    grid.dispose()
    return directory / "out"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The page of a month with 500 sites, and that of a site with 20 endpoints."""
    directory = tmp_path_factory.mktemp("large")
    return write_large_pages(directory, directory)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    yield page
    page.context.close()


@pytest.fixture
def phone(browser: Browser) -> Iterator[Page]:
    """A page on a small screen, without scripts."""
    page = browser.new_page(java_script_enabled=False, viewport={"width": 400, "height": 800})
    yield page
    page.context.close()


@pytest.mark.parametrize("name", KINDS)
def test_axe_finds_no_violation_in_light_and_dark(page: Page, out: Path, name: str) -> None:
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.goto((out / name).as_uri())
    page.evaluate(AXE.read_text(encoding="utf-8"))

    for scheme, rules in (("light", "{}"), ("dark", "{runOnly: ['color-contrast']}")):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        results = page.evaluate(f"axe.run({rules})")
        violations = [
            (violation["id"], node["html"], node["failureSummary"])
            for violation in results["violations"]
            for node in violation["nodes"][:2]
        ]
        assert violations == []
        assert results["passes"] != []
    assert requested == [(out / name).as_uri()]


@pytest.mark.parametrize("name", KINDS)
def test_without_scripts_every_table_fits_a_small_screen_and_no_button_does_nothing(
    phone: Page, out: Path, name: str
) -> None:
    phone.goto((out / name).as_uri())

    assert phone.locator("h1").is_visible()
    for table in phone.locator("main table:not(details:not([open]) table)").all():
        assert table.is_visible()
        assert table.locator("tbody tr").count() > 0
    assert phone.evaluate(OVERFLOW) <= 0
    assert phone.locator("[role=button], input").count() == 0


def test_a_click_on_a_head_sorts_all_rows_and_the_third_restores_the_bands(
    page: Page, out: Path
) -> None:
    page.goto((out / f"{MONTH}/index.html").as_uri())
    rows = page.locator(".matrix tbody tr:not([hidden]) th")
    first_order = rows.all_inner_texts()
    figures = page.locator(".matrix tbody td:nth-of-type(3)")
    head = page.locator("thead th", has_text="bility").nth(1)
    orders = []

    for _ in range(2):
        head.get_by_role("button").click()
        assert page.locator(".band:visible").count() == 0
        orders.append([float(figure.strip("✗ ")) for figure in figures.all_inner_texts()])

    assert orders == [sorted(orders[0]), sorted(orders[0], reverse=True)]
    assert head.get_attribute("aria-sort") == "descending"
    head.get_by_role("button").click()
    assert rows.all_inner_texts() == first_order


def test_each_day_of_the_matrix_has_a_title_and_its_head_stays_in_sight(
    page: Page, out: Path, large: tuple[Path, Path]
) -> None:
    page.goto((out / f"{MONTH}/index.html").as_uri())
    days = page.locator(".matrix tbody tr:not(.band) td:nth-of-type(n+5)")
    titles = days.evaluate_all("cells => cells.map(cell => cell.title)")
    page.goto(large[0].as_uri())
    page.evaluate("scrollTo(0, 4000)")

    assert len(titles) == 10 * 30 and all(", 2026-11-" in title for title in titles)
    assert any(title.endswith("availability 100 %, targets met") for title in titles)
    assert any(title.endswith(": not computed") for title in titles)
    head = page.locator(".matrix thead th").nth(9).bounding_box()
    assert head is not None and head["y"] == 0


def test_the_filter_knows_groups_is_in_the_address_and_printed(page: Page, tmp_path: Path) -> None:
    rows = [
        f"<tr data-groups='tier {n % 12}\ncountry CH'><th>SITE-{n}</th></tr>" for n in range(24)
    ]
    script = (TEMPLATES / "script.js").read_text()
    table = (
        f"<table class=sortable><thead><tr><th>Site</thead><tbody>{''.join(rows)}</tbody></table>"
    )
    (tmp_path / "page.html").write_text(f"<meta charset=utf-8>{table}<script>{script}</script>")
    url = (tmp_path / "page.html").as_uri()
    page.goto(url)
    shown = page.locator("tbody tr:not([hidden])")

    page.locator("input").fill("Tier 1")
    assert shown.all_inner_texts() == ["SITE-1", "SITE-13"]  # not those of tier 10
    assert page.url == f"{url}#filter=Tier+1"
    assert page.locator("output").inner_text() == "Only “Tier 1”: 2 of 24"
    page.goto("about:blank")
    page.goto(f"{url}#filter=site-2")
    assert shown.all_inner_texts() == ["SITE-2", "SITE-20", "SITE-21", "SITE-22", "SITE-23"]
    page.locator("input").fill("")
    assert (page.url, shown.count()) == (url, 24)


def test_a_bad_day_is_opened_by_its_anchor_without_scripts(phone: Page, out: Path) -> None:
    phone.goto(f"{(out / MONTH / BAD_SITE).as_uri()}.html#{MARKED_DAY}")

    assert phone.locator(f"[id='{MARKED_DAY}'] table.timeline").first.is_visible()
    assert phone.locator(f"[id='{MARKED_DAY}'] .causes").first.is_visible()


def test_large_pages_are_drawn_within_the_bound(browser: Browser, large: tuple[Path, Path]) -> None:
    for path in large:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        clock = page.context.new_cdp_session(page)
        clock.send("Performance.enable", {"timeDomain": "threadTicks"})

        page.goto(path.as_uri())
        page.evaluate(DRAWN)

        metrics = clock.send("Performance.getMetrics")["metrics"]
        [task_s] = [metric["value"] for metric in metrics if metric["name"] == "TaskDuration"]
        assert 0 < task_s < DRAWN_WITHIN_S
        page.context.close()
