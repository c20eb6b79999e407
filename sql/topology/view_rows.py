"""Reads and writes rows of the class views, in the same form for both dialects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnClause, Connection, column, insert, select, table

from sam_pipeline.schema.identity.identity import operator_identity
from sam_pipeline.schema.login import login_name
from sam_pipeline.schema.records.classes import MessageClass
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.loading.catalogue import MESSAGE_ID, PUBLISHER

Row = Mapping[str, str]
"""Attributes by their wire keys, without missing ones; times are `YYYY-MM-DDThh:mm:ssZ`. The
`messageId` of a stored row identifies its source."""

GOCDB, CRIC, VO_FEED = "gocdb", "cric", "vofeed"
"""The sources of rows written by imports of feeds; that of a VO feed ends in `:` and its VO. The
messageId of such a row is the source, a colon, and the time of the snapshot."""

BY_HAND = "by-hand:"
"""Prefix of the messageId of rows written by `sam-db downtime`; the command's time follows."""

_OF_A_FEED = re.compile(
    rf"({GOCDB}|{CRIC}|{VO_FEED}:[^:]+):\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII
)


def source_of(row: Row) -> str:
    """The source of a row: `gocdb`, `cric`, `vofeed:VO`, `by hand` or `message`."""
    message_id = row.get(MESSAGE_ID, "")
    if match := _OF_A_FEED.fullmatch(message_id):
        return match[1]
    return "by hand" if message_id.startswith(BY_HAND) else "message"


def key_of(row: Row, keys: Iterable[str]) -> tuple[str, ...]:
    """The values of `keys`, with "" for missing ones."""
    return tuple(row.get(key, "") for key in keys)


def stored_rows(connection: Connection, message_class: MessageClass) -> list[Row]:
    """All rows of a class."""
    keys = [*message_class.keys, MESSAGE_ID]
    view = table(message_class.name.lower())
    return [
        {
            key: format_time(value) if isinstance(value, datetime) else str(value)
            for key, value in zip(keys, values, strict=True)
            if value is not None
        }
        for values in connection.execute(select(*map(_column, keys)).select_from(view))
    ]


def insert_rows(connection: Connection, message_class: MessageClass, rows: Iterable[Row]) -> None:
    """Insert rows into the view of a class, in their order; this process's login sent them."""
    keys = [*message_class.keys, MESSAGE_ID, PUBLISHER]
    facts = {PUBLISHER: operator_identity(login_name())}
    values = [{key.lower(): {**row, **facts}.get(key) for key in keys} for row in rows]
    if values:
        view = table(message_class.name.lower(), *map(_column, keys))
        connection.execute(insert(view), values)


def _column(key: str) -> ColumnClause[Any]:
    # PostgreSQL folds unquoted names to lower case; SQLite ignores case.
    return column(key.lower())
