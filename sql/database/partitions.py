"""The daily partitions of metric results (PostgreSQL), created before the rows that need them.

A statement that reads many of them needs as many locks: read them in portions of MAX_DAYS.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from operator import methodcaller

from sqlalchemy import Connection, Engine, text

from sam_pipeline.sql.database.engine import load_transaction, reading
from sam_pipeline.sql.errors import SqlError

MAX_DAYS = 50
"""Days whose partitions a transaction creates, or fills.

A day costs thirteen locks to create and about seven to fill. By default all sessions of a
PostgreSQL server share room for about 7,000; when it is full, those of other databases also fail.
"""

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

_MAKE = text("SELECT make_partitions(CAST(:days AS date[]))")


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


class Partitions:
    """Creates partitions, and remembers which days have theirs.

    A prune may drop one that is remembered. Then the function that stores the rows creates it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: frozenset[str] = frozenset()

    def make(self, days: Iterable[str]) -> bool:
        """Make sure that these UTC days (YYYY-MM-DD) have partitions; whether some had none.

        They are created in transactions of their own, at most MAX_DAYS in each.

        Raises:
            DatabaseAway: some were not created; try again later.
        """
        missing = sorted(frozenset(days) - self._known)
        if not missing or self._engine.dialect.name == "sqlite":
            return False
        try:
            for at in range(0, len(missing), MAX_DAYS):
                part = missing[at : at + MAX_DAYS]
                load_transaction(self._engine, methodcaller("execute", _MAKE, {"days": part}))
                self._known |= frozenset(part)
        except SqlError:
            self._known = frozenset()
            raise
        return True


def days_until(first: datetime, last: datetime) -> list[str]:
    """The UTC days, as YYYY-MM-DD, from that of `first` to that of `last`."""
    start = first.date()
    return [f"{start + timedelta(days=n)}" for n in range((last.date() - start).days + 1)]


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
