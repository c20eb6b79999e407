"""Rows of the class views as commands read and write them, alike for both dialects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnClause, Connection, TableClause, column, insert, select, table

from sam_pipeline.schema.records.classes import MessageClass
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.loading.catalogue import MESSAGE_ID

Row = Mapping[str, str]
"""Attributes by their wire keys, absent ones left out; times as `YYYY-MM-DDThh:mm:ssZ`. A row
that is or was stored has a `messageId`, which says where it came from."""

GOCDB = "gocdb:"
"""How the messageId of a row begins that an import of GOCDB wrote; its snapshot's time follows."""

BY_HAND = "by-hand:"
"""The same of `sam-db downtime`; the time of the command follows."""


def source_of(row: Row) -> str:
    """`gocdb`, `by hand` or `message`: who wrote a row."""
    message_id = row.get(MESSAGE_ID, "")
    if message_id.startswith(GOCDB):
        return "gocdb"
    return "by hand" if message_id.startswith(BY_HAND) else "message"


def key_of(row: Row, keys: Iterable[str]) -> tuple[str, ...]:
    """The values of `keys`, absent ones as ""."""
    return tuple(row.get(key, "") for key in keys)


def stored_rows(connection: Connection, message_class: MessageClass) -> list[Row]:
    """All rows of a class."""
    keys = [*message_class.keys, MESSAGE_ID]
    rows = connection.execute(select(*map(_column, keys)).select_from(_view(message_class)))
    return [
        {key: _text(value) for key, value in zip(keys, row, strict=True) if value is not None}
        for row in rows
    ]


def insert_rows(connection: Connection, message_class: MessageClass, rows: Iterable[Row]) -> None:
    """INSERT INTO the view, in the order given."""
    keys = [*message_class.keys, MESSAGE_ID]
    values = [{key.lower(): row.get(key) for key in keys} for row in rows]
    if values:
        connection.execute(insert(_view(message_class, keys)), values)


# Unquoted names are lower case on PostgreSQL, and any case will do on SQLite.
def _column(key: str) -> ColumnClause[Any]:
    return column(key.lower())


def _view(message_class: MessageClass, keys: Iterable[str] = ()) -> TableClause:
    return table(message_class.name.lower(), *map(_column, keys))


def _text(value: object) -> str:
    return format_time(value) if isinstance(value, datetime) else str(value)
