"""How far the clock of the database is from ours."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy import Engine, text

from sam_pipeline.sql.database.engine import reading

_NOW = text("SELECT clock_timestamp()")


def clock_offset(engine: Engine, clock: Callable[[], datetime]) -> timedelta:
    """What to add to our clock to get that of the server; SQLite has none of its own."""
    if engine.dialect.name != "postgresql":
        return timedelta()
    with reading(engine) as connection:
        before = clock()
        theirs: datetime = connection.execute(_NOW).scalar_one()
        after = clock()
    return theirs - (before + (after - before) / 2)
