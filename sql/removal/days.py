"""The days whose reports change with rows that count for a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

_DAY = timedelta(days=1)


class RowSpan(NamedTuple):
    """A row that counts from `start` until `end` (None: for ever).

    If `at_midnight`, it counts on the days at whose beginning it is valid; otherwise on each day
    that it overlaps, for that part of the day.
    """

    key: tuple[Any, ...]
    start: datetime
    end: datetime | None
    facts: tuple[Any, ...]
    at_midnight: bool

    def on_days(self, first: date, last: date) -> Iterator[tuple[date, object]]:
        """The days from `first` to `last` on which the row counts, with what it says of them."""
        day = max(self.start.date(), first)
        while day <= last:
            midnight = datetime.combine(day, time(), UTC)
            if self.end is not None and self.end <= midnight:
                return
            if not self.at_midnight:
                end = min(self.end or midnight + _DAY, midnight + _DAY)
                yield day, (self.facts, max(self.start, midnight), end)
            elif self.start <= midnight:
                yield day, self.facts
            day += _DAY


def changed_days(
    before: Iterable[RowSpan], after: Iterable[RowSpan], first: date, last: date
) -> set[date]:
    """The days from `first` to `last` on which the rows before and after are not the same."""
    old, new = (
        {(day, row.key): said for row in rows for day, said in row.on_days(first, last)}
        for rows in (before, after)
    )
    return {at[0] for at in old.keys() | new.keys() if old.get(at) != new.get(at)}
