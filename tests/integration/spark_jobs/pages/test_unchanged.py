"""Which pages `sam-report site` writes again, and how its pages lead to one another."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from sqlalchemy import text

from sam_pipeline.spark_jobs.cli import main
from sam_pipeline.spark_jobs.pages import site_tree
from sam_pipeline.sql.database.engine import name_of, writing
from tests.support.reports.database import Grid
from tests.support.reports.pages import BAD_SITE, FIRST, LAST, add_candidate, fill

OCTOBER, NOVEMBER = "test/2026-10", "test/2026-11"
BOTH = ("--from", str(FIRST), "--to", str(LAST))


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grid]:
    directory = tmp_path_factory.mktemp("pages")
    grid = fill(f"sqlite:///{directory}/sam.db", directory)
    yield grid
    grid.dispose()


@pytest.fixture(scope="module")
def both(grid: Grid, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of both months, which tests leave as they are."""
    out = tmp_path_factory.mktemp("both") / "out"
    site(grid, out, *BOTH)
    return out


def site(grid: Grid, out: Path, *options: str) -> None:
    config = out.parent / "sam.toml"
    config.write_text(f'[database]\nurl = "{name_of(grid.engine)}"\n')
    assert main(["--config", str(config), "-q", "site", *options, "--out", str(out)]) == 0


def copy_of(pages: Path, tmp_path: Path) -> Path:
    out = tmp_path / "out"
    subprocess.run(["cp", "-a", pages, out], check=True)
    return out


def times(out: Path) -> dict[str, int]:
    """The time of each file, in nanoseconds; a file that is replaced gets another one."""
    return {
        str(path.relative_to(out)): path.stat().st_mtime_ns
        for path in out.rglob("*")
        if path.is_file()
    }


def replaced(out: Path, before: dict[str, int]) -> set[str]:
    return {name for name, time in times(out).items() if before.get(name) != time}


def test_a_second_run_without_changes_replaces_no_file(
    grid: Grid, both: Path, tmp_path: Path
) -> None:
    out = copy_of(both, tmp_path)
    before = times(out)

    site(grid, out, *BOTH)

    assert replaced(out, before) == set()


def test_only_pages_that_change_are_replaced(grid: Grid, both: Path, tmp_path: Path) -> None:
    out = copy_of(both, tmp_path)
    before = times(out)
    with writing(grid.engine) as connection:
        add_candidate(connection, 77, date(2026, 10, 31))
    try:
        site(grid, out, *BOTH)
    finally:
        with writing(grid.engine) as connection:
            for table in ("candidate_run", "report_change_row", "run"):
                connection.execute(text(f"DELETE FROM {table} WHERE run_id = 77"))

    assert replaced(out, before) == {f"{OCTOBER}/pages.sha256", f"{OCTOBER}/changes.html"}


@pytest.mark.parametrize("damage", ["deleted", "edited", "edited to the same size"])
def test_a_deleted_or_edited_page_is_written_again(
    grid: Grid, both: Path, tmp_path: Path, damage: str
) -> None:
    out = copy_of(both, tmp_path)
    page = out / OCTOBER / f"{BAD_SITE}.html"
    text_before, before = page.read_text(), times(out)
    if damage == "deleted":
        page.unlink()
    else:
        page.write_text("x" * (1 if damage == "edited" else len(text_before.encode())))

    site(grid, out, *BOTH)

    assert page.read_text() == text_before
    assert replaced(out, before) == {f"{OCTOBER}/{BAD_SITE}.html"}


def test_the_record_of_the_pages_can_be_checked_with_sha256sum(both: Path) -> None:
    command = ["sha256sum", "--check", "--strict", "--quiet", "pages.sha256"]

    checked = subprocess.run(command, cwd=both / NOVEMBER, capture_output=True, text=True)

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_a_month_added_later_is_linked_from_the_month_before_and_the_start_page(
    grid: Grid, both: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    site(grid, out, "--month", "2026-10")
    alone = (out / OCTOBER / "index.html").read_text()

    site(grid, out, "--month", "2026-11")

    assert 'rel="next"' not in alone
    assert (
        'href="../../test/2026-11/index.html" rel="next"'
        in (out / OCTOBER / "index.html").read_text()
    )
    start = (out / "index.html").read_text()
    assert f'href="{OCTOBER}/index.html"' in start and f'href="{NOVEMBER}/index.html"' in start
    for path in both.rglob("*.html"):
        assert (out / path.relative_to(both)).read_text() == path.read_text()


def test_every_page_leads_to_the_same_page_of_the_month_before_and_after(both: Path) -> None:
    names = [
        f"{BAD_SITE}.html",
        "groups/federation.html",
        "trends.html",
        "changes.html",
        "incidents.html",
    ]

    for name in ["index.html", *names]:
        up = "../" * (2 + name.count("/"))
        october, november = ((both / month / name).read_text() for month in (OCTOBER, NOVEMBER))
        assert f'href="{up}{NOVEMBER}/{name}" rel="next"' in october
        assert 'rel="prev"' not in october
        assert f'href="{up}{OCTOBER}/{name}" rel="prev"' in november
        assert 'rel="next"' not in november


def test_a_site_without_a_page_in_the_month_before_leads_to_the_sites_of_that_month(
    grid: Grid, tmp_path: Path
) -> None:
    directory = tmp_path / "copy"
    directory.mkdir()
    copy = fill(f"sqlite:///{directory}/sam.db", directory)
    with writing(copy.engine) as connection:
        for table in ("site_figure", "group_site"):
            connection.execute(text(f"DELETE FROM {table} WHERE site = 'SITE-004' AND run_id <= 4"))

    site(copy, tmp_path / "out", *BOTH)

    copy.dispose()
    page = (tmp_path / "out" / NOVEMBER / "SITE-004.html").read_text()
    assert f'href="../../{OCTOBER}/index.html" rel="prev"' in page
    assert not (tmp_path / "out" / OCTOBER / "SITE-004.html").exists()


def test_the_year_of_a_site_and_of_a_group_has_a_figure_for_each_month(both: Path) -> None:
    for name in (f"{BAD_SITE}.html", "groups/federation.html"):
        page = (both / NOVEMBER / name).read_text()
        year = page.partition('<figure class="year">')[2].partition("</figure>")[0]

        assert re.findall(r"<title>(\w+ \d+): availability \d", year) == [
            "October 2026",
            "November 2026",
        ]
        assert f"{OCTOBER}/{name}" in year
        october = (both / OCTOBER / name).read_text()
        assert '<figure class="year">' not in october


def test_pages_drawn_in_several_processes_are_the_same(
    grid: Grid, both: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_tree, "_SITES_AT_ONCE", 3)

    site(grid, tmp_path / "out", *BOTH)

    for path in both.rglob("*"):
        if path.is_file():
            assert (tmp_path / "out" / path.relative_to(both)).read_bytes() == path.read_bytes()
