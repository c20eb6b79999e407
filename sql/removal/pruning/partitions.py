"""The day partitions of results and their details (PostgreSQL only)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, timedelta

from sqlalchemy import Connection, Engine, text

from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.partitions import Partitions

RESULTS = "metric_result"
DETAILS = "metric_result_detail"

# The row count is an estimate of the last VACUUM or ANALYZE, and unknown before the first one.
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
        AND pg_relation_size(c.oid) IS NOT NULL  -- NULL: dropped since the snapshot
    ORDER BY day, parent
""")


@dataclass(frozen=True)
class Partition:
    """One UTC day of `parent`; `rows` is an estimate or None, `bytes` includes indexes."""

    parent: str
    name: str
    day: date
    rows: int | None
    bytes: int
    filled: bool


def partitions(connection: Connection) -> list[Partition]:
    """The partitions of both tables, ordered by day; none on SQLite."""
    if connection.dialect.name == "sqlite":
        return []
    return [Partition(**row) for row in connection.execute(_PARTITIONS).mappings()]


def make_partitions(engine: Engine, days: Collection[date]) -> list[Partition]:
    """Create the missing partitions of these days, and return them; none on SQLite.

    Raises:
        DatabaseRefused: only the owner and the loader may create partitions.
    """
    with reading(engine) as connection:
        before = partitions(connection)
    existing = {(partition.parent, partition.day) for partition in before}
    wanted = {(parent, day) for parent in (RESULTS, DETAILS) for day in days}
    if engine.dialect.name == "sqlite" or wanted <= existing:
        return []
    Partitions(engine).make(map(str, days))
    with reading(engine) as connection:
        names = {partition.name for partition in before}
        return [partition for partition in partitions(connection) if partition.name not in names]


def coming_days(today: date, ahead: int) -> list[date]:
    """Today and the `ahead` days after it."""
    return [today + timedelta(days=number) for number in range(ahead + 1)]
