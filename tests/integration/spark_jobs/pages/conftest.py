"""Two months of pages, which tests leave as they are, and their database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sam_pipeline.sql.database.engine import name_of
from tests.integration.spark_jobs.conftest import SamReport
from tests.support.reports.database import Grid, url_of
from tests.support.reports.pages import FIRST, LAST, fill


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
    SamReport(url_of(grid.engine), out.parent)("-q", "site", *period, "--out", out)
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
