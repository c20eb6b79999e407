"""Reads the topology, the downtimes and the exclusions that touch a day, from the input views."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from sqlalchemy import Connection, text

from sam_pipeline.sql.archive.layout import ENDPOINT, MEMBER, SCHEMAS
from sam_pipeline.sql.archive.manifest import DOWNTIMES, EXCLUSIONS, TOPOLOGY

_VALID = "valid_from_s < :end AND (valid_to_s IS NULL OR valid_to_s > :start)"
_OF_SECONDS = {"valid_from": "valid_from_s", "valid_to": "valid_to_s", "start_time": "start_s"}
_OF_SECONDS["end_time"] = "end_s"

_STATEMENTS = (
    (TOPOLOGY, ENDPOINT, f"SELECT * FROM report_topology WHERE {_VALID}"),
    (TOPOLOGY, MEMBER, f"SELECT * FROM report_site_group WHERE {_VALID}"),
    # All parts of a downtime, so that it can be restored.
    (
        DOWNTIMES,
        "",
        "SELECT * FROM report_downtime WHERE whole_start_s < :end AND whole_end_s > :start",
    ),
    # A result of the day before that does not exist is not carried over to the day either.
    (EXCLUSIONS, "", "SELECT * FROM report_exclusion WHERE start_s < :end AND end_s >= :before"),
)


def read_inputs(connection: Connection, day: date) -> dict[str, pa.Table]:
    """The tables by kind, with the columns of the files, in an order that only depends on them."""
    start = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
    one_day = int(timedelta(days=1).total_seconds())
    times = {"start": start, "end": start + one_day, "before": start - one_day}
    rows: dict[str, list[dict[str, Any]]] = {TOPOLOGY: [], DOWNTIMES: [], EXCLUSIONS: []}
    for kind, record, statement in _STATEMENTS:
        for row in connection.execute(text(statement), times).mappings():
            rows[kind].append(_as_stored(kind, {**row, "record": record}))
    return {
        kind: pa.Table.from_pylist(sorted(of_kind, key=lambda row: repr([*row.values()])), schema)
        for kind, of_kind in rows.items()
        for schema in [SCHEMAS[kind]]
    }


def _as_stored(kind: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with the columns of the file; SQLite has times as text."""
    stored = {name: row.get(name) for name in SCHEMAS[kind].names}
    for name, seconds in _OF_SECONDS.items():
        if name in stored:
            second = row[seconds]
            stored[name] = None if second is None else datetime.fromtimestamp(second, UTC)
    if "added_at" in stored:
        stored["added_at"] = as_time(stored["added_at"])
    return stored


def as_time(value: Any) -> datetime:
    """A time of a view: text on SQLite."""
    if isinstance(value, datetime):
        return value
    return datetime.fromisoformat(value)
