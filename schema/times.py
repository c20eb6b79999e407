"""Times on the wire: read tolerantly, written as `YYYY-MM-DDThh:mm:ssZ`."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache

from sam_pipeline.schema.errors import ClockNotSet

# Compiled when needed: nearly all times have our own form.
_ISO = (
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,]\d{1,30})?)?\s?"
    r"(Z|z|[+-]\d\d(?::?\d\d)?)?"
)
_EPOCH = r"([0-9]{1,11})(?:\.[0-9]{1,30})?"
_DAY = r"\d{4}-\d\d-\d\d"
_DURATION = r"((?:0|[1-9][0-9]{0,8})(?:\.[0-9]{1,3})?)(s|m|min|h|d)"
_UNITS_S = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}
LONGEST = timedelta(days=99_999)
"""The longest duration: from any present date it leads to a year of four digits."""

RECENT_TIMES = 1000
"""The limit on cached times: results that arrive together share them."""
NOT_BEFORE = datetime(2026, 11, 1, tzinfo=timezone.utc)
"""The date of this program: a clock that shows an earlier time was never set."""


def require_set_clock(now: datetime) -> None:
    """Raises ClockNotSet: results of such a clock could never be loaded."""
    if now < NOT_BEFORE:
        raise ClockNotSet(
            f"the clock of this host shows {format_time(now)}, which is before the release of this"
            " program: the times of results can't be trusted; set the clock (NTP), then try again"
        )


def parse_time(text: str) -> datetime:
    """The time in UTC, in whole seconds (a fraction is cut off).

    Accepts ISO 8601 with `T` or one blank, with or without seconds, `Z`, an offset, also of hours
    alone, or no zone (then UTC), 24:00 as the end of a day, and epoch seconds.

    Raises:
        ValueError: the text is not a time.
    """
    if len(text) == 20 and text[4::3] == "--T::Z":
        with suppress(ValueError):
            return datetime.fromisoformat(text[:19]).replace(tzinfo=timezone.utc)
    iso = re.fullmatch(_ISO, text, re.ASCII)
    if iso is None:
        epoch = re.fullmatch(_EPOCH, text)
        if epoch:
            return datetime.fromtimestamp(int(epoch.group(1)), timezone.utc)
        raise ValueError(
            f"{text[:40]!r} is not a time (expected YYYY-MM-DDThh:mm:ssZ or epoch seconds)"
        )
    try:
        year, month, day, hour, minute, second = (int(part or 0) for part in iso.groups()[:6])
        days = timedelta()
        if (hour, minute, second) == (24, 0, 0):
            hour, days = 0, timedelta(days=1)
        local = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc) + days
        zone = iso.group(7)
        if zone is None or zone in "Zz":
            return local
        hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
        if hours > 23 or minutes > 59:
            raise ValueError(f"its offset {zone} is out of range")
        offset = timedelta(hours=hours, minutes=minutes)
        return local + offset if zone[0] == "-" else local - offset
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text[:40]!r} is not a time: {error}") from None


def parse_day(text: str) -> date:
    """The day `YYYY-MM-DD`; raises ValueError if the text is not a date."""
    try:
        if re.fullmatch(_DAY, text, re.ASCII):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise ValueError(f"{text[:40]!r} is not a date (expected YYYY-MM-DD)")


def parse_duration(text: str) -> timedelta:
    """A number and a unit: `90s`, `1.5min` (or `1.5m`), `24h`, `30d`.

    Raises:
        ValueError: the text is not a duration, or longer than LONGEST.
    """
    match = re.fullmatch(_DURATION, text)
    duration = timedelta(seconds=float(match[1]) * _UNITS_S[match[2]]) if match else None
    if duration is None or duration > LONGEST:
        raise ValueError(f"{text[:40]!r} is not a duration (expected 90s, 24h, 30d or similar)")
    return duration


def format_duration(seconds: float) -> str:
    """`30d`, `24h`, `90s`: as `parse_duration` reads it, in the largest unit without a fraction."""
    units = (unit for unit in ("d", "h", "min") if seconds and seconds % _UNITS_S[unit] == 0)
    unit = next(units, "s")
    return f"{seconds / _UNITS_S[unit]:g}{unit}"


def format_time(moment: datetime) -> str:
    """`2026-11-20T12:00:00Z`."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


@lru_cache(maxsize=RECENT_TIMES)
def utc(text: str) -> str:
    """A time in any accepted format, in ours. Raises ValueError."""
    return format_time(parse_time(text))


@lru_cache(maxsize=10)  # all records of a batch share one `now`
def window(now: datetime, past: timedelta, future: timedelta) -> tuple[str, str]:
    """The earliest and the latest time that are accepted, in wire format."""
    return format_time(now - past), format_time(now + future)
