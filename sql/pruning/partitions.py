"""The day partitions of results and their details (PostgreSQL; SQLite has none)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date, timedelta

from sqlalchemy import Connection, Engine, text

from sam_pipeline.sql.database.engine import reading, writing

RESULTS = "metric_result"
DETAILS = "metric_result_detail"

# Rows are those of the last VACUUM or ANALYZE; a table that never saw one has none to tell.
_PARTITIONS = text(r"""
    SELECT
        p.relname AS parent,
        c.relname AS name,
        to_date(right(c.relname, 8), 'YYYYMMDD') AS day,
        CASE
            WHEN pg_relation_size(c.oid) = 0 THEN 0
            WHEN c.relpages > 0 AND c.reltuples >= 0 THEN CAST(c.reltuples AS bigint)
        END AS rows,
        pg_total_relation_size(c.oid) AS bytes,
        pg_relation_size(c.oid) > 0 AS filled
    FROM pg_inherits AS i
    JOIN pg_class AS p ON p.oid = i.inhparent
    JOIN pg_class AS c ON c.oid = i.inhrelid
    WHERE p.relnamespace = CAST(CAST(current_schema() AS text) AS regnamespace)
        AND p.relname IN ('metric_result', 'metric_result_detail')
        AND c.relname ~ concat('^', p.relname, '_\d{8}$')
        AND pg_relation_size(c.oid) IS NOT NULL  -- not dropped while we look
    ORDER BY day, parent
""")
_MAKE = text("SELECT make_partitions(CAST(:days AS date[]))")


@dataclass(frozen=True)
class Partition:
    """One UTC day of `parent`. `rows` is about, None: not known; `bytes` with indexes and all."""

    parent: str
    name: str
    day: date
    rows: int | None
    bytes: int
    filled: bool


def partitions(connection: Connection) -> list[Partition]:
    """All of both tables, by day; none on SQLite."""
    if connection.dialect.name == "sqlite":
        return []
    return [Partition(**row) for row in connection.execute(_PARTITIONS).mappings()]


def make_partitions(engine: Engine, days: Collection[date]) -> list[Partition]:
    """Make what is missing for these days; those made now. Nothing on SQLite.

    Raises:
        DatabaseRefused: neither the owner nor a loader asks.
    """
    with reading(engine) as connection:
        before = partitions(connection)
    if engine.dialect.name == "sqlite" or _complete(before, days):
        return []
    with writing(engine) as connection:
        connection.execute(_MAKE, {"days": sorted(days)})
        known = {one.name for one in before}
        return [one for one in partitions(connection) if one.name not in known]


def coming_days(today: date, ahead: int) -> list[date]:
    """Today and so many days after it."""
    return [today + timedelta(days=more) for more in range(ahead + 1)]


def _complete(found: Iterable[Partition], days: Iterable[date]) -> bool:
    there = {(one.parent, one.day) for one in found}
    return there >= {(parent, day) for parent in (RESULTS, DETAILS) for day in days}
