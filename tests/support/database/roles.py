"""Engines that work under the role of a program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine

from sam_pipeline.sql.database.engine import make_engine
from tests.services.postgres import as_role


@contextmanager
def acting_as(role: str, engine: Engine) -> Iterator[Engine]:
    """The same database for a member of `sam_<role>`; SQLite knows no users."""
    if engine.dialect.name == "sqlite":
        yield engine
        return
    other = make_engine(as_role(engine.url.render_as_string(hide_password=False), role))
    yield other
    other.dispose()
