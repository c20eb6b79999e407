"""Times, days, windows and ages on a command line, and the bounds of a prune."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import date, timedelta

import pytest

from sam_pipeline.sql.commands.imports.feed_command import window_argument
from sam_pipeline.sql.imports.feed_changes import Window
from sam_pipeline.sql.removal.pruning.partitions import coming_days
from sam_pipeline.sql.removal.pruning.request import Bounds, bounds_of
from sam_pipeline.sql.removal.revoking.days import RowSpan, changed_days
from sam_pipeline.sql.topology.moments import age_argument, days_of, time_argument

TODAY = date(2026, 11, 20)
DAY1, DAY2 = "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"


@pytest.mark.parametrize(
    ("argument", "text", "value"),
    [
        (time_argument, "2026-11-20T08:00:00Z", "2026-11-20T08:00:00Z"),
        (time_argument, "2026-11-20 08:00Z", "2026-11-20T08:00:00Z"),
        (time_argument, "2026-11-20T09:30+01:30", "2026-11-20T08:00:00Z"),
        (time_argument, "2026-11-20T00:00:05-0200", "2026-11-20T02:00:05Z"),
        (window_argument, "2026-11-01..2026-11-30", Window(DAY1, "2026-12-01T00:00:00Z")),
        (window_argument, "2026-11-01..2026-11-01", Window(DAY1, DAY2)),
        (window_argument, "2026-11-01T00:00Z..2026-11-02T00:00Z", Window(DAY1, DAY2)),
        (age_argument, "1d", 1),
        (age_argument, "99999d", 99_999),
    ],
)
def test_an_argument_is_read(argument: Callable[[str], object], text: str, value: object) -> None:
    assert argument(text) == value


NO_TIME = "now", "2026-11-20", "20261120", "2026-11-20T24:00Z", "0001-01-01T00:00+01:00"
NO_AGE = "0d", "", "60", "-1d", "1.5d", "2w", "06d", "٦d", "100000d", "1d "


@pytest.mark.parametrize(
    ("argument", "text", "problem"),
    [
        (time_argument, "2026-11-20T08:00", "2026-11-20T08:00Z"),
        *((time_argument, text, "is not a time") for text in NO_TIME),
        (window_argument, "2026-11-01", "is not a window"),
        (window_argument, "2026-11-30..2026-11-01", "ends before it begins"),
        (window_argument, "2026-11-01T08:00..2026-11-01T09:00", "no time zone"),
        *((age_argument, text, "is not an age") for text in NO_AGE),
    ],
)
def test_any_other_argument_is_refused(
    argument: Callable[[str], object], text: str, problem: str
) -> None:
    with pytest.raises(ArgumentTypeError, match=problem):
        argument(text)


@pytest.mark.parametrize(
    ("start", "end", "days"),
    [
        ("2026-11-18T00:00:00Z", "2026-11-19T00:00:00Z", [18]),
        ("2026-11-18T23:59:59Z", "2026-11-19T00:00:01Z", [18, 19]),
        ("2026-11-18T12:00:00Z", "2026-11-18T12:00:00Z", []),
        ("2026-11-19T12:00:00Z", "2027-01-01T00:00:00Z", [19, 20]),
        ("2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z", []),
    ],
)
def test_the_days_of_an_interval_are_those_it_overlaps_up_to_today(
    start: str, end: str, days: list[int]
) -> None:
    assert days_of(start, end, TODAY) == [date(2026, 11, day) for day in days]


def test_a_prune_keeps_today_and_the_days_of_the_age_before_it() -> None:
    ten = TODAY - timedelta(days=10)

    assert bounds_of(TODAY, 400, 60) == Bounds(date(2025, 10, 16), date(2026, 9, 21))
    assert bounds_of(TODAY, None, 60) == Bounds(None, date(2026, 9, 21))
    # Details are removed no later than their results.
    assert bounds_of(TODAY, 10, 60) == bounds_of(TODAY, 10, None) == Bounds(ten, ten)
    others = bounds_of(TODAY, 10, None, 1, 2)
    assert (others.audit, others.dead_letters) == (date(2026, 11, 19), date(2026, 11, 18))
    assert bounds_of(TODAY, 10, 10) == Bounds(ten, ten, None, None)
    assert bounds_of(TODAY, 99_999, None).results == date(1753, 2, 5)
    assert coming_days(TODAY, 2) == [TODAY, date(2026, 11, 21), date(2026, 11, 22)]


# The days that a revocation changes ---------------------------------------------------------------


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
