"""The content of the report views in the types of the oracle, for both databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import NullPool, create_engine, text

from tests.oracle.duckdb_rules import KEYS
from tests.oracle.oracle import STATUSES, Figures, GroupFigures, Segment

Key = tuple[str, ...]


class StoredReport:
    """The published report of some days, read from the views."""

    def __init__(self, database: str, report: str) -> None:
        self._database = database
        self._report = report

    def figures(self, level: str, day: date) -> dict[Key, Figures]:
        """The seconds per status; `percentages_of` has the percentages."""
        return {
            key: Figures({status: int(row[f"{status.lower()}_s"]) for status in STATUSES})
            for key, row in self._figure_rows(level, day)
        }

    def percentages_of(self, level: str, day: date) -> dict[Key, tuple[Decimal | None, ...]]:
        """(availability, reliability)."""
        return {key: percentages(row) for key, row in self._figure_rows(level, day)}

    def timelines(self, level: str, day: date) -> dict[Key, tuple[Segment, ...]]:
        timelines: dict[Key, tuple[Segment, ...]] = {}
        more = "AND level = :level ORDER BY start_time"
        for row in self._rows("status_timeline", day, more, level=level[:-1]):
            start, end = moment_of(row["start_time"]), moment_of(row["end_time"])
            key = _key(row, level)
            timelines[key] = (*timelines.get(key, ()), Segment(start, end, row["status"]))
        return timelines

    def groups(self, day: date) -> dict[tuple[str, str], GroupFigures]:
        return {
            (row["group_type"], row["group_name"]): GroupFigures(
                *percentages(row), row["sites_expected"], row["sites_known"]
            )
            for row in self._rows("group_availability", day)
        }

    def _figure_rows(self, level: str, day: date) -> Iterator[tuple[Key, Mapping[str, Any]]]:
        for row in self._rows(f"{level[:-1]}_availability", day):
            yield _key(row, level), row

    def _rows(self, view: str, day: date, more: str = "", **values: str) -> list[Mapping[str, Any]]:
        statement = f"SELECT * FROM {view} WHERE report = :report AND day = :day {more}"
        is_sqlite = self._database.startswith("sqlite")
        bound = {"report": self._report, "day": str(day) if is_sqlite else day, **values}
        return query(self._database, statement, **bound)


def _key(row: Mapping[str, Any], level: str) -> Key:
    return tuple(row[name] for name in KEYS[level[:-1]])


def query(database: str, statement: str, **values: Any) -> list[Mapping[str, Any]]:
    """All rows of a SELECT."""
    with create_engine(database, poolclass=NullPool).connect() as connection:
        return [dict(row) for row in connection.execute(text(statement), values).mappings()]


def execute(database: str, statement: str) -> None:
    """Run one statement and commit."""
    with create_engine(database, poolclass=NullPool).begin() as connection:
        connection.execute(text(statement))


def percentages(row: Mapping[str, Any]) -> tuple[Decimal | None, Decimal | None]:
    """(availability, reliability) of a row, from any type the database returns."""
    return _decimal(row["availability"]), _decimal(row["reliability"])


def _decimal(value: Any) -> Decimal | None:
    return None if value is None else Decimal(str(value)).quantize(Decimal("0.00001"))


def moment_of(value: Any) -> datetime:
    """A time in UTC, from either database."""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    assert isinstance(moment, datetime)
    return moment.astimezone(UTC)
