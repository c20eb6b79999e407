"""Which pages `sam-report site` writes again, and how its pages lead to one another."""

from __future__ import annotations

import shutil
import subprocess
from datetime import date
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.spark_jobs.pages import site_tree
from sam_pipeline.sql.database.engine import writing
from tests.integration.spark_jobs.conftest import SamReport
from tests.integration.spark_jobs.pages.conftest import pages_below, write_pages
from tests.support.reports.database import DAY, Grid, profile
from tests.support.reports.pages import BAD_SITE, add_candidate
from tests.support.reports.published_days import publish

OCTOBER = "test/2026-10"
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
    assert replaced() == {f"{OCTOBER}/pages.sha256", f"{OCTOBER}/changes.html"}
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
    monkeypatch.setattr(site_tree, "_SITES_AT_ONCE", 3)

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
    sam_report("site", *months)
    before = pages_below(tmp_path / "pages")
    publish(engine, report, DAY, {"A CE h1": BAD, "B CE h2": BAD})

    printed = sam_report("site", *months, "--site", "A").out

    path = "test/2026-11/A.html"
    assert printed.splitlines() == [f"pages/{path}"]
    after = pages_below(tmp_path / "pages")
    assert {name for name in after if after[name] != before.get(name)} == {path}
    sam_report("site", *months)
    assert pages_below(tmp_path / "pages")[path] == after[path]
    one = ("site", "--day", DAY, "--out", "one")
    assert "did you mean A" in sam_report(*one, "--site", "a", code=64).err
    assert not (tmp_path / "one").exists()
    assert sam_report(*one, "--site", "A", "--json").json == {"index": None, "pages": [path]}
