"""Days and times in wire format."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from sam_pipeline.schema.times import format_time, parse_time


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
