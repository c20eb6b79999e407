"""Provides empty databases of both dialects quickly, one after the other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine

from sam_pipeline.sql.database.engine import make_engine, writing
from tests.integration.conftest import EMPTY_ALL_TABLES
from tests.support.database.with_schema import with_schema

DIALECTS = ("sqlite", "postgresql")


class Databases:
    """Creates the schema once per dialect: a SQLite file to copy, and a database to empty.

    Args:
        directory: for files.
        postgres_url: an empty database, or one that does not exist.
    """

    def __init__(self, directory: Path, postgres_url: str) -> None:
        self.directory = directory
        self._template = directory / "template.db"
        self._postgres_url = postgres_url
        for url in (f"sqlite:///{self._template}", postgres_url):
            with_schema(url).dispose()

    @contextmanager
    def empty(self, dialect: str) -> Iterator[Engine]:
        """An empty database; on PostgreSQL always the same one."""
        if dialect == "sqlite":
            path = self.directory / "worlds.db"
            shutil.copy(self._template, path)
            engine = make_engine(f"sqlite:///{path}")
        else:
            engine = make_engine(self._postgres_url)
            with writing(engine) as connection:
                connection.execute(EMPTY_ALL_TABLES)
        try:
            yield engine
        finally:
            engine.dispose()
            for path in self.directory.glob("worlds.db*"):
                path.unlink()
