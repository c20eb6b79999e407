"""Reads and writes rows of the classes of statements, in the same form for both dialects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnClause, Connection, Select, column, insert, null, select, table

from sam_pipeline.schema.identity.identity import operator_identity
from sam_pipeline.schema.records.classes import DOWNTIME, MessageClass
from sam_pipeline.schema.times import format_time, parse_time
from sam_pipeline.sql.database.operations import login_name
from sam_pipeline.sql.database.statements import HISTORIES
from sam_pipeline.sql.loading.catalogue import (
    ANNOUNCED_AT,
    MESSAGE_ID,
    PUBLISHER,
    RECEIVED_AT,
    SOURCE,
)

Row = Mapping[str, str]
"""Attributes by their wire keys, without missing ones; times are `YYYY-MM-DDThh:mm:ssZ`. `source`
is where a row comes from: `message`, `hand`, `file` or `feed NAME`."""

GOCDB, CRIC, VO_FEED, OSG, ARGO = "gocdb", "cric", "vofeed", "osg", "argo"
"""The names of feeds; that of a VO feed ends in `:` and its VO."""

HAND = "hand"
"""The source of rows written by `sam-db downtime`."""

HOLDS, WITHDRAWN_AT = "holds", "withdrawnAt"
"""Keys of statements that hold, and of those that were withdrawn."""


def key_of(row: Row, keys: Iterable[str]) -> tuple[str, ...]:
    """The values of `keys`, with "" for missing ones."""
    return tuple(row.get(key, "") for key in keys)


def stored_rows(connection: Connection, message_class: MessageClass) -> list[Row]:
    """All rows of a class: the statements that hold."""
    keys = [*message_class.keys, SOURCE]
    view = table(message_class.name.lower())
    return _rows(connection, keys, select(*map(_column, keys)).select_from(view))


def last_said(connection: Connection, message_class: MessageClass, source: str) -> list[Row]:
    """The last statement of a source about each key, but none that was withdrawn."""
    keys = [*message_class.keys, SOURCE]
    holds: ColumnClause[bool] = column(HOLDS)
    statement = (
        select(*map(_column, keys), holds)
        .select_from(table(HISTORIES[message_class.name]))
        .where(_column(SOURCE) == source, _column("withdrawnAt") == null())
        .order_by(_column("timestamp"))
    )
    rows = _rows(connection, [*keys, HOLDS], statement)
    last = {key_of(row, message_class.natural_key): row for row in rows}
    return list(last.values())


def history(
    connection: Connection, message_class: MessageClass, site: str | None = None
) -> list[Row]:
    """All statements of a class, or those about a site, by key and then by time."""
    facts = (SOURCE, PUBLISHER, MESSAGE_ID, RECEIVED_AT, WITHDRAWN_AT, HOLDS)
    keys = [*message_class.keys, *facts]
    order = (*message_class.natural_key, "timestamp", RECEIVED_AT)
    statement = (
        select(*map(_column, keys))
        .select_from(table(HISTORIES[message_class.name]))
        .order_by(*map(_column, order))
    )
    if site is not None:
        statement = statement.where(_column("siteName") == site)
    return _rows(connection, keys, statement)


def insert_rows(connection: Connection, message_class: MessageClass, rows: Iterable[Row]) -> None:
    """Insert rows into the view of a class, in their order; this process's login sent them."""
    keys = [*message_class.keys, SOURCE, PUBLISHER]
    if message_class is DOWNTIME:
        keys.append(ANNOUNCED_AT)
    facts = {PUBLISHER: operator_identity(login_name())}
    values = [{key.lower(): {**row, **facts}.get(key) for key in keys} for row in rows]
    if values:
        view = table(message_class.name.lower(), *map(_column, keys))
        connection.execute(insert(view), values)


def _rows(connection: Connection, keys: list[str], statement: Select[Any]) -> list[Row]:
    return [
        {
            key: format_time(value) if isinstance(value, datetime) else str(value)
            for key, value in zip(keys, values, strict=True)
            if value is not None and not (key == HOLDS and not value)
        }
        for values in connection.execute(statement)
    ]


def _column(key: str) -> ColumnClause[Any]:
    # PostgreSQL folds unquoted names to lower case; SQLite ignores case.
    return column(key.lower())


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
