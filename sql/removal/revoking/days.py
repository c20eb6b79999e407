"""The days whose reports change with rows that count for a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from typing import Any, NamedTuple


class RowSpan(NamedTuple):
    """A row that counts on the days from `first` up to `end` (None: for ever)."""

    key: tuple[Any, ...]
    first: date
    end: date | None
    facts: tuple[Any, ...]


def changed_days(
    before: Iterable[RowSpan], after: Iterable[RowSpan], first: date, last: date
) -> set[date]:
    """The days from `first` to `last` on which the rows before and after are not the same."""
    facts: dict[tuple[date, tuple[Any, ...]], list[object]] = defaultdict(lambda: [None, None])
    for number, rows in enumerate((before, after)):
        for row in rows:
            for day in _days(row, first, last):
                facts[day, row.key][number] = row.facts
    return {day for (day, _), (old, new) in facts.items() if old != new}


def _days(row: RowSpan, first: date, last: date) -> Iterator[date]:
    day = max(row.first, first)
    while day <= last and (row.end is None or day < row.end):
        yield day
        day += timedelta(days=1)
