"""The command `sam-report`, and a grid to report on, with the database of the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.support.commands import Answer, Workplace
from tests.support.reports.database import Grid, url_of


class SamReport:
    """Runs commands in this process, each with the login that it needs."""

    def __init__(self, database: str, directory: Path) -> None:
        self.workplace = Workplace(directory, "spool://queue", database)
        self.configure("")

    def configure(self, more: str) -> None:
        """Write the configuration file, with more lines."""
        text = f'[database]\nurl = "{self.workplace.database}"\n{more}'
        self.workplace.write("sam.toml", text)

    def __call__(self, *arguments: object, code: int = 0) -> Answer:
        """The answer to a command that must end with this exit code."""
        answer = self.workplace.run("sam-report", *map(str, arguments))
        assert answer.code == code, str(answer)
        return answer


@pytest.fixture
def sam_report(engine: Engine, tmp_path: Path) -> SamReport:
    return SamReport(url_of(engine), tmp_path)


@pytest.fixture
def grid(engine: Engine) -> Iterator[Grid]:
    """An empty database of each kind."""
    grid = Grid(engine)
    yield grid
    grid.dispose()


@pytest.fixture
def small_grid(tmp_path: Path) -> Iterator[Grid]:
    """An empty SQLite database, where the kind makes no difference."""
    grid = Grid(f"sqlite:///{tmp_path}/sam.db")
    yield grid
    grid.dispose()
