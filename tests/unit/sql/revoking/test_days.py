"""The days on which rows that count for a time are no longer the same."""

from __future__ import annotations

from datetime import date

import pytest

from sam_pipeline.sql.removal.revoking.days import RowSpan, changed_days


def day(number: int) -> date:
    return date(2026, 11, number)


def span(first: int, end: int | None = None, key: str = "a", facts: str = "") -> RowSpan:
    return RowSpan((key,), day(first), None if end is None else day(end), (facts,))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([span(3, 6)], [span(3, 6)], []),
        ([span(3, 6)], [], [3, 4, 5]),
        ([], [span(3, 6)], [3, 4, 5]),
        ([span(3, 6)], [span(3)], [6, 7, 8]),
        ([span(3, 6)], [span(5, 8)], [3, 4, 6, 7]),
        ([span(3, 6, facts="weight 1")], [span(5, 7, facts="weight 2")], [3, 4, 5, 6]),
        ([span(3, 6)], [span(3, 6, key="b")], [3, 4, 5]),
        ([span(1, 3)], [], [2]),
        ([span(7)], [], [7, 8]),
        ([span(9)], [], []),
    ],
)
def test_the_days_between_the_first_and_the_last_on_which_rows_differ(
    before: list[RowSpan], after: list[RowSpan], expected: list[int]
) -> None:
    days = changed_days(before, after, first=day(2), last=day(8))

    assert sorted(days) == [day(number) for number in expected]
