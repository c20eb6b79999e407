"""The daily partitions of metric results (PostgreSQL), created before the rows that need them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from sqlalchemy import Engine, text

from sam_pipeline.sql.database.transaction import load_transaction
from sam_pipeline.sql.errors import SqlError

MAX_DAYS = 50
"""Days whose partitions a transaction creates, or fills.

A day costs thirteen locks to create and about seven to fill. By default all sessions of a
PostgreSQL server share room for about 7,000; when it is full, those of other databases fail, too.
"""

_MAKE = text("SELECT make_partitions(CAST(:days AS date[]))")


class Partitions:
    """Creates partitions, and remembers which days have theirs.

    A prune may drop one that is remembered. Then the function that stores the rows creates it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: frozenset[str] = frozenset()

    def make(self, days: Iterable[str], on_commit: Callable[[], None] = lambda: None) -> None:
        """Make sure that these UTC days (YYYY-MM-DD) have partitions.

        They are created in transactions of their own, at most MAX_DAYS in each. `on_commit` is
        called after each of these.

        Raises:
            DatabaseAway: some were not created; try again later.
        """
        missing = sorted(frozenset(days) - self._known)
        if not missing or self._engine.dialect.name == "sqlite":
            return
        try:
            for at in range(0, len(missing), MAX_DAYS):
                part = missing[at : at + MAX_DAYS]
                load_transaction(
                    self._engine,
                    lambda connection: connection.execute(_MAKE, {"days": part}),  # noqa: B023
                )
                on_commit()
                self._known |= frozenset(part)
        except SqlError:
            self._known = frozenset()
            raise


def days_until(first: datetime, last: datetime) -> list[str]:
    """The UTC days, as YYYY-MM-DD, from that of `first` to that of `last`."""
    start = first.date()
    return [f"{start + timedelta(days=n)}" for n in range((last.date() - start).days + 1)]
