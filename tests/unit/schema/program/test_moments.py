"""Times, days, months and ages on command lines."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import UTC, date, datetime

import pytest

from sam_pipeline.schema.program import moments
from sam_pipeline.schema.program.moments import (
    day_argument,
    days_argument,
    moment_argument,
    month_argument,
    time_argument,
)

NOW = datetime(2026, 1, 10, 12, 0, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "utc_now", lambda: NOW)


@pytest.mark.parametrize(
    ("argument", "text", "value"),
    [
        (time_argument, "2026-11-20T08:00:00Z", "2026-11-20T08:00:00Z"),
        (time_argument, "2026-11-20 09:30+01:30", "2026-11-20T08:00:00Z"),
        (time_argument, "2026-11-20T00:00:05-0200", "2026-11-20T02:00:05Z"),
        (time_argument, "now", "2026-01-10T12:00:30Z"),
        (time_argument, "90s", "2026-01-10T11:59:00Z"),
        (time_argument, "30min", "2026-01-10T11:30:30Z"),
        (time_argument, "24h", "2026-01-09T12:00:30Z"),
        (time_argument, "30d", "2025-12-11T12:00:30Z"),
        (time_argument, "today", "2026-01-10T00:00:00Z"),
        (time_argument, "yesterday", "2026-01-09T00:00:00Z"),
        (time_argument, "2026-11-20", "2026-11-20T00:00:00Z"),
        (time_argument, "2026-11", "2026-11-01T00:00:00Z"),
        (time_argument, "last-month", "2025-12-01T00:00:00Z"),
        (moment_argument, "2026-11-20T08:00Z", datetime(2026, 11, 20, 8, tzinfo=UTC)),
        (day_argument, "2026-11-20", date(2026, 11, 20)),
        (day_argument, "today", date(2026, 1, 10)),
        (day_argument, "yesterday", date(2026, 1, 9)),
        (day_argument, "30d", date(2025, 12, 11)),
        (month_argument, "2026-11", date(2026, 11, 1)),
        (month_argument, "this-month", date(2026, 1, 1)),
        (month_argument, "last-month", date(2025, 12, 1)),
        (days_argument, "1d", 1),
        (days_argument, "99999d", 99_999),
    ],
)
def test_a_moment_is_read(argument: Callable[[str], object], text: str, value: object) -> None:
    assert argument(text) == value


NO_TIME = "tomorrow", "20261120", "2026-11-20T24:01Z", "0001-01-01T00:00+01:00", "2w"
NO_DAY = "now", "24h", "0d", "2026-02-30", "2026-11", "2026-11-20T08:00Z", "last-month"
NO_MONTH = "2026-13", "2026-11-20", "november", "30d", ""
NO_AGE = "0s", "", "60", "-1d", "1,5d", "2w", "06d", "٦d", "100000d", "1d ", "yesterday"


@pytest.mark.parametrize(
    ("argument", "text", "problem"),
    [
        (time_argument, "2026-11-20T08:00", "no time zone .for UTC: 2026-11-20T08:00Z"),
        *((time_argument, text, "is not a time") for text in NO_TIME),
        *((day_argument, text, "is not a date .expected YYYY-MM-DD") for text in NO_DAY),
        *((month_argument, text, "is not a month .expected YYYY-MM") for text in NO_MONTH),
        *((days_argument, text, "expected 1d to 99999d") for text in (*NO_AGE, "24h", "1.5d")),
    ],
)
def test_any_other_text_is_refused(
    argument: Callable[[str], object], text: str, problem: str
) -> None:
    with pytest.raises(ArgumentTypeError, match=problem):
        argument(text)
