"""The content of the report views in the types of the oracle, for both databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import create_engine, text

from tests.oracle.oracle import STATUSES, Figures, GroupFigures, Segment

Key = tuple[str, ...]
VIEW_KEYS: Mapping[str, Sequence[str]] = {
    "endpoints": ("site", "service_flavour", "host_name"),
    "services": ("site", "service_flavour"),
    "functions": ("site", "function"),
    "sites": ("site",),
}
TIMELINE_KEYS: Mapping[str, Sequence[str]] = {
    "metrics": ("site", "service_flavour", "host_name", "metric_name"),
    **VIEW_KEYS,
}


class StoredReport:
    """The published report of some days, read from the views."""

    def __init__(self, database: str, report: str) -> None:
        self._database = database
        self._report = report

    def figures(self, level: str, day: date) -> dict[Key, Figures]:
        """The seconds per status; `percentages_of` has the percentages."""
        return {
            self._key(row, VIEW_KEYS[level]): Figures(
                {status: int(row[f"{status.lower()}_s"]) for status in STATUSES}
            )
            for row in self._figure_rows(level, day)
        }

    def percentages_of(self, level: str, day: date) -> dict[Key, tuple[Decimal | None, ...]]:
        """(availability, reliability)."""
        return {
            self._key(row, VIEW_KEYS[level]): percentages(row)
            for row in self._figure_rows(level, day)
        }

    def timelines(self, level: str, day: date) -> dict[Key, tuple[Segment, ...]]:
        rows = self._rows("status_timeline", day, "AND level = :level", level=level[:-1])
        segments_by_key: dict[Key, list[Segment]] = {}
        for row in rows:
            segment = Segment(
                moment_of(row["start_time"]), moment_of(row["end_time"]), row["status"]
            )
            segments_by_key.setdefault(self._key(row, TIMELINE_KEYS[level]), []).append(segment)
        return {
            key: tuple(sorted(segments, key=lambda segment: segment.start))
            for key, segments in segments_by_key.items()
        }

    def groups(self, day: date) -> dict[tuple[str, str], GroupFigures]:
        return {
            (row["group_type"], row["group_name"]): GroupFigures(
                *percentages(row), row["sites_expected"], row["sites_known"]
            )
            for row in self._rows("group_availability", day)
        }

    def _figure_rows(self, level: str, day: date) -> list[Mapping[str, Any]]:
        return self._rows(f"{level[:-1]}_availability", day)

    def _rows(self, view: str, day: date, more: str = "", **values: str) -> list[Mapping[str, Any]]:
        statement = f"SELECT * FROM {view} WHERE report = :report AND day = :day {more}"
        is_sqlite = self._database.startswith("sqlite")
        bound = {"report": self._report, "day": str(day) if is_sqlite else day, **values}
        return query(self._database, statement, **bound)

    def _key(self, row: Mapping[str, Any], columns: Sequence[str]) -> Key:
        return tuple(row[column] for column in columns)


def query(database: str, statement: str, **values: Any) -> list[Mapping[str, Any]]:
    """All rows of a SELECT."""
    with _engine(database) as engine, engine.connect() as connection:
        return [dict(row) for row in connection.execute(text(statement), values).mappings()]


def execute(database: str, statement: str) -> None:
    """Run one statement and commit."""
    with _engine(database) as engine, engine.begin() as connection:
        connection.execute(text(statement))


def percentages(row: Mapping[str, Any]) -> tuple[Decimal | None, Decimal | None]:
    """(availability, reliability) of a row, from any type the database returns."""
    return _decimal(row["availability"]), _decimal(row["reliability"])


@contextmanager
def _engine(database: str) -> Iterator[Any]:
    engine = create_engine(database)
    try:
        yield engine
    finally:
        engine.dispose()


def _decimal(value: Any) -> Decimal | None:
    return None if value is None else Decimal(str(value)).quantize(Decimal("0.00001"))


def moment_of(value: Any) -> datetime:
    """A time in UTC, from either database."""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    assert isinstance(moment, datetime)
    return moment.astimezone(UTC)
