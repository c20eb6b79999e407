"""Whose records of which time are revoked, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, CursorResult, bindparam, text

from sam_pipeline.sql.loading.letters.dead_letter import stored_time

ALWAYS = datetime(9999, 12, 31, tzinfo=UTC)
"""The end of a period without one."""

THEIRS = "publisher_id IN :ids AND received_at >= :since AND received_at < :until"
"""The condition on rows of a table with publishers, for `RevokedPeriod.run`."""


class Withdrawn(NamedTuple):
    """What was done to the rows of a class.

    `removed`: records of the publisher; `restored`: rows that others have said as well; `days` on
    which rows are no longer the same.
    """

    removed: int = 0
    restored: int = 0
    days: frozenset[date] = frozenset()


class RevokedPeriod(NamedTuple):
    """What these publishers said from `since` until `until`, in the transaction of a connection.

    Of results, those that were measured from `start` until `stop`.
    """

    connection: Connection
    ids: Sequence[int]
    since: datetime
    until: datetime
    start: datetime
    stop: datetime

    def run(self, statement: str) -> CursorResult[Any]:
        """Execute a statement with these values, and the present time as `now`."""
        prepared = text(statement)
        if ":ids" in statement:
            prepared = prepared.bindparams(bindparam("ids", expanding=True))
        return self.connection.execute(prepared, self.values)

    def note(self, name: str, query: str) -> None:
        """Keep the rows of a query in a temporary table."""
        self.run(f"DROP TABLE IF EXISTS {name}")
        self.run(f"CREATE TEMPORARY TABLE {name} AS {query}")

    @property
    def values(self) -> dict[str, object]:
        """The values of statements, with times as the database stores them."""
        names = ("since", "until", "start", "stop")
        moments = {"now": datetime.now(UTC), **{name: getattr(self, name) for name in names}}
        times = {name: stored_time(self.connection, moments[name]) for name in moments}
        return {"ids": self.ids, **times}
