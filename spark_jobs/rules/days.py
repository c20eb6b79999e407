"""UTC days: 86 400 seconds each, whatever the calendar says (availability rule 1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

DAY_S = 86_400
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class Period:
    """Days from first to last, both included."""

    first: date
    last: date

    def days(self) -> Iterator[date]:
        return (self.first + timedelta(days=at) for at in range((self.last - self.first).days + 1))

    def months(self) -> Iterator[Period]:
        """The parts of the period that lie in one month each."""
        first = self.first
        while first <= self.last:
            following = (first.replace(day=1) + timedelta(days=31)).replace(day=1)
            yield Period(first, min(self.last, following - timedelta(days=1)))
            first = following

    def __str__(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"


def month_of(day: date) -> Period:
    """All days of the day's month."""
    first = day.replace(day=1)
    return Period(first, (first + timedelta(days=31)).replace(day=1) - timedelta(days=1))


def day_number(day: date) -> int:
    """Days since the epoch: a day as Spark counts it."""
    return (day - _EPOCH).days


def day_start(day: date) -> int:
    """The epoch second of the day's 00:00:00Z."""
    return day_number(day) * DAY_S


def as_day(value: str | date) -> date:
    """A day as the database gives it: text on SQLite, a date on PostgreSQL."""
    return date.fromisoformat(value) if isinstance(value, str) else value


def moment(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)
