"""Times, days, months and ages on command lines, spelled the same everywhere.

Relative ones count from now, and days and months are those of UTC; a time needs a zone. All
functions are argparse `type`s.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone

from sam_pipeline.schema.times import LONGEST, format_time, parse_day, parse_duration, parse_time

DAY = timedelta(days=1)
FORMS = {
    "TIME": "30d, 24h or 90s before now; now, today, yesterday, last-month, 2026-11 or 2026-11-07,"
    " which begin at 00:00 UTC; or 2026-11-07T08:00Z",
    "DAY": "2026-11-07, today, yesterday, or 30d for 30 days ago, in UTC",
    "MONTH": "2026-11, this-month or last-month",
}
"""How to write them, by their placeholders in the help."""

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(Z|[+-]\d\d:?\d\d)?", re.ASCII)


def utc_now() -> datetime:
    """The time in whole seconds, as on the wire."""
    return datetime.now(timezone.utc).replace(microsecond=0)


def utc_today() -> date:
    return utc_now().date()


def moment_argument(text: str) -> datetime:
    """A time in UTC: `2026-11-07T08:00Z`, `now`, an age, or the start of a day or a month."""
    if match := _TIME.fullmatch(text):
        if not match[1]:
            raise ArgumentTypeError(f"{text!r} has no time zone (for UTC: {text}Z)")
        try:
            return parse_time(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None
    with suppress(ValueError):
        return utc_now() - parse_duration("0s" if text == "now" else text)
    for first_day in (day_argument, month_argument):
        with suppress(ArgumentTypeError):
            return datetime.combine(first_day(text), time(), timezone.utc)
    raise ArgumentTypeError(
        f"{text!r} is not a time (expected 24h, 30d, yesterday, 2026-11-07 or 2026-11-07T08:00Z)"
    )


def time_argument(text: str) -> str:
    """Like moment_argument, in wire format: `2026-11-07T08:00:00Z`."""
    return format_time(moment_argument(text))


def day_argument(text: str) -> date:
    """A UTC day: `2026-11-07`, `today`, `yesterday`, or `30d`, which is 30 days before today."""
    if text in ("today", "yesterday"):
        return utc_today() - DAY * (text == "yesterday")
    with suppress(ArgumentTypeError):
        return utc_today() - DAY * days_argument(text)
    try:
        return parse_day(text)
    except ValueError:
        raise ArgumentTypeError(
            f"{text!r} is not a date (expected YYYY-MM-DD, today, yesterday or 30d)"
        ) from None


def month_argument(text: str) -> date:
    """The first day of a month: `2026-11`, `this-month`, `last-month`."""
    if text in ("this-month", "last-month"):
        first = utc_today().replace(day=1)
        return first if text == "this-month" else (first - DAY).replace(day=1)
    try:
        return parse_day(f"{text}-01")
    except ValueError:
        raise ArgumentTypeError(
            f"{text!r} is not a month (expected YYYY-MM, this-month or last-month)"
        ) from None


def days_argument(text: str) -> int:
    """An age in whole days, at least one: `30d`."""
    match = re.fullmatch("([1-9][0-9]{0,4})d", text)
    if match is None:
        raise ArgumentTypeError(f"{text!r} is not an age in days (expected 1d to {LONGEST.days}d)")
    return int(match[1])
