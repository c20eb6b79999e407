"""Times, ages and days of command lines; ambiguous ones are rejected."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, date, datetime, timedelta

from sam_pipeline.schema.times import format_time, parse_time

_AGE = re.compile("([1-9][0-9]{0,4})d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:?\d\d)?", re.ASCII)


def time_argument(text: str) -> str:
    """A time with a zone, seconds being optional, as `YYYY-MM-DDThh:mm:ssZ`."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time (expected YYYY-MM-DDThh:mmZ)")
    seconds, zone = match.groups()
    if zone is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone (for UTC: {text}Z)")
    try:
        return format_time(parse_time(text if seconds else text[: -len(zone)] + ":00" + zone))
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def age_argument(text: str) -> int:
    """The number of days in an age such as `400d`."""
    match = _AGE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age (expected 1d to 99999d)")
    return int(match[1])


def day_start(day: date) -> str:
    """00:00:00Z of the day, in wire format."""
    return f"{day.isoformat()}T00:00:00Z"


def day_end(day: date) -> str:
    """00:00:00Z of the next day, in wire format; 9999-12-31 ends at 23:59:59Z."""
    return day_start(day + timedelta(days=1)) if day < date.max else f"{day}T23:59:59Z"


def days_of(start: str, end: str, today: date) -> list[date]:
    """The UTC days up to today that `[start, end)`, in wire format, overlaps."""
    if end <= start:
        return []
    first = parse_time(start).date()
    last = min(today, (parse_time(end) - timedelta(seconds=1)).date())
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def wire_now() -> str:
    return format_time(datetime.now(UTC))
