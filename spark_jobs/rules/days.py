"""UTC days of 86,400 seconds each; leap seconds are ignored (availability rule 1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

DAY_S = 86_400
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class Period:
    """The days from first to last, both included."""

    first: date
    last: date

    @property
    def start(self) -> int:
        """The epoch second at which the first day starts."""
        return day_start(self.first)

    @property
    def end(self) -> int:
        """The epoch second at which the last day ends."""
        return day_start(self.last) + DAY_S

    @property
    def bounds(self) -> dict[str, str]:
        """`first` and `last` as parameters for SQL statements."""
        return {"first": self.first.isoformat(), "last": self.last.isoformat()}

    def days(self) -> Iterator[date]:
        count = (self.last - self.first).days + 1
        return (self.first + timedelta(days=offset) for offset in range(count))

    def with_days_before(self, count: int) -> Period:
        """The period, extended by some days before the first one."""
        return Period(self.first - timedelta(days=count), self.last)

    def months(self) -> Iterator[Period]:
        """The period, cut where months end."""
        first = self.first
        while first <= self.last:
            last = min(self.last, month_of(first).last)
            yield Period(first, last)
            first = last + timedelta(days=1)

    def in_whole_months(self) -> Period:
        """The period, extended to whole months."""
        return Period(month_of(self.first).first, month_of(self.last).last)

    def __str__(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"


def month_of(day: date) -> Period:
    """The whole month of a day."""
    first = day.replace(day=1)
    return Period(first, (first + timedelta(days=31)).replace(day=1) - timedelta(days=1))


def periods(days: Iterable[date]) -> list[Period]:
    """Sorted days as periods of successive days."""
    periods: list[Period] = []
    for day in days:
        if periods and periods[-1].last + timedelta(days=1) == day:
            periods[-1] = Period(periods[-1].first, day)
        else:
            periods.append(Period(day, day))
    return periods


def in_ranges(days: Iterable[date]) -> str:
    """Sorted days as text: "2026-11-01 to 2026-11-07, 2026-11-10"."""
    return ", ".join(map(str, periods(days)))


def day_number(day: date) -> int:
    """Days since the epoch, as Spark counts them."""
    return (day - _EPOCH).days


def day_start(day: date) -> int:
    """The epoch second of 00:00:00Z on the day."""
    return day_number(day) * DAY_S


def as_day(value: str | date) -> date:
    """A day read from the database: SQLite returns text, PostgreSQL a date."""
    return date.fromisoformat(value) if isinstance(value, str) else value


def moment(second: int) -> datetime:
    """An epoch second as an aware UTC time."""
    return datetime.fromtimestamp(second, UTC)
