"""Times, days and windows on a command line."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import date

import pytest

from sam_pipeline.sql.commands.imports.feed_command import window_argument
from sam_pipeline.sql.imports.feed_changes import Window
from sam_pipeline.sql.topology.moments import days_of, time_argument

TODAY = date(2026, 11, 20)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-11-20T08:00:00Z", "2026-11-20T08:00:00Z"),
        ("2026-11-20 08:00Z", "2026-11-20T08:00:00Z"),
        ("2026-11-20T09:30+01:30", "2026-11-20T08:00:00Z"),
        ("2026-11-20T00:00:05-0200", "2026-11-20T02:00:05Z"),
    ],
)
def test_a_time_has_a_zone_and_becomes_utc(text: str, time: str) -> None:
    assert time_argument(text) == time


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2026-11-20T08:00", "2026-11-20T08:00Z"),
        ("2026-11-20", "is not a time"),
        ("20261120", "is not a time"),
        ("20/11/2026 08:00Z", "is not a time"),
        ("2026-11-20T24:00Z", "is not a time"),
        ("2026-02-30T08:00Z", "is not a time"),
        ("0001-01-01T00:00+01:00", "is not a time"),
        ("now", "is not a time"),
        ("", "is not a time"),
    ],
)
def test_ambiguous_times_are_refused(text: str, message: str) -> None:
    with pytest.raises(ArgumentTypeError, match=message):
        time_argument(text)


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


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("2026-11-01..2026-11-30", ("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")),
        ("2026-11-01..2026-11-01", ("2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z")),
        ("2026-11-01T08:00Z..2026-11-01T09:00Z", ("2026-11-01T08:00:00Z", "2026-11-01T09:00:00Z")),
    ],
)
def test_a_window_is_two_inclusive_days_or_two_times(text: str, window: tuple[str, str]) -> None:
    assert window_argument(text) == Window(*window)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2026-11-01", "is not a window"),
        ("2026-11-30..2026-11-01", "ends before it begins"),
        ("2026-11-01..2026-11-02T00:00Z", "is not a time"),
        ("2026-11-01T08:00..2026-11-01T09:00", "no time zone"),
        ("2026-11-01T08:00Z..2026-11-01T08:00Z", "ends before it begins"),
    ],
)
def test_any_other_window_is_refused(text: str, message: str) -> None:
    with pytest.raises(ArgumentTypeError, match=message):
        window_argument(text)
