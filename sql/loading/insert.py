"""Inserts rows into views: all at once, or where the database refuses some, all the others."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, column, insert, table

from sam_pipeline.schema.records.classes import built_in
from sam_pipeline.sql.errors import DRIVER_ERRORS, Kind, kind_of, message_of
from sam_pipeline.sql.loading.batch import (
    CLASS_BROKEN,
    REFUSED,
    Batch,
    PendingRow,
    RecordFailure,
    whole_message,
)
from sam_pipeline.sql.loading.catalogue import ClassView
from sam_pipeline.sql.loading.staging import copy_rows, open_staging

logger = logging.getLogger(__name__)

LONGEST_VALUE = 80
"""Characters of a value that an error quotes; the dead letter has the whole value."""


class _ClassBroken(Exception):
    """No row of the class can be inserted."""


@dataclass
class Inserted:
    """The number of rows stored of each class, and all records that failed."""

    rows_by_class: dict[str, int]
    failures: list[RecordFailure]

    @property
    def rows(self) -> int:
        """The rows of all classes."""
        return sum(self.rows_by_class.values())


def insert_batch(connection: Connection, batch: Batch) -> Inserted:
    """Insert a batch in the caller's transaction; raises driver errors that a retry may solve."""
    inserted = Inserted({}, list(batch.failures))
    for name, part in sorted(batch.by_view.items()):
        rows = in_key_order(part.view, part.rows)
        try:
            with connection.begin_nested():
                refused = _insert_rows(connection, part.view, rows)
        except _ClassBroken as error:
            inserted.failures += [
                whole_message(message, CLASS_BROKEN, str(error)) for message in part.messages
            ]
            continue
        known = built_in(name)  # the catalogue of PostgreSQL has its name in lower case
        inserted.rows_by_class[known.name if known else name] = len(rows) - len(refused)
        inserted.failures += [*part.undecodable, *refused]
    return inserted


def in_key_order(view: ClassView, rows: Sequence[PendingRow]) -> Sequence[PendingRow]:
    """The rows of a built-in class in the order of its natural key.

    Loaders that insert the same rows in the same order wait for each other; in different orders
    they would deadlock.
    """
    known = built_in(view.name)
    if known is None:
        return rows
    key_names = {key.lower() for key in known.natural_key}
    key = [column for column in view.columns if column.lower() in key_names]
    absent = [""] * len(key)
    return sorted(rows, key=lambda pending: "\0".join(map(pending.row.values.get, key, absent)))


def _insert_rows(
    connection: Connection, view: ClassView, rows: Sequence[PendingRow]
) -> list[RecordFailure]:
    """Insert all rows but those that the database refuses.

    A part with such a row is halved until the row is found. After it, parts grow again from a
    single row, so that one bad row among n takes some log n attempts, and n of them about n.

    After an internal error of the server all rows are tried once more: they may not be at fault.
    """
    refused: list[RecordFailure] = []
    start, size = 0, len(rows)
    failing_until = 0  # a row before this one is known to be bad
    while start < len(rows):
        part = rows[start : start + size]
        failure = _insert_part(connection, view, part, is_retry=failing_until > 0)
        if failure is None:
            start += len(part)
            size = max((failing_until - start) // 2, 1) if start < failing_until else 2 * size
        elif len(part) > 1:
            if not failing_until and view.bulk:
                with connection.begin_nested():
                    open_staging(connection, view)
            failing_until = start + len(part)
            size = len(part) // 2
        else:
            refused.append(failure)
            start += 1
            size = 1
    return refused


def _insert_part(
    connection: Connection, view: ClassView, rows: Sequence[PendingRow], is_retry: bool
) -> RecordFailure | None:
    """Insert rows; returns the failure of the first one if the database refuses any of them."""
    try:
        with connection.begin_nested():
            if connection.dialect.name == "postgresql":
                copy_rows(connection, view, [(row.values, id_) for _, id_, row in rows])
            else:
                values: list[dict[str, str | None]] = []
                for _, message_id, row in rows:
                    values.append({name: row.values.get(name) for name in view.columns})
                    if view.message_id_column:
                        values[-1][view.message_id_column] = message_id
                into = insert(table(view.name, *map(column, view.all_columns)))
                connection.execute(into, values)
        return None
    except DRIVER_ERRORS as error:
        kind, text = kind_of(error), f"{view.name}: {message_of(error)}"
        if kind is Kind.RETRY:
            raise
        if kind is Kind.CLASS:
            raise _ClassBroken(text) from error
        if kind is Kind.HICCUP and not is_retry:
            logger.warning("trying once more: %s", text)
            return _insert_part(connection, view, rows, is_retry=True)
        message, _, row = rows[0]
        text += _unquoted_values(text, view, row.values)
        return RecordFailure(message, row.number, REFUSED, text, row.raw)


def _unquoted_values(text: str, view: ClassView, values: Mapping[str, str]) -> str:
    """The values that an error mentions by column but does not quote, else all values.

    Triggers of SQLite can't name a value, constraints name columns of tables (host_name), and an
    error about a value that does not fit its type names no column.
    """

    def plain(name: str) -> str:
        return name.replace("_", "").lower()

    words = set(map(plain, re.findall(r"\w+", text)))
    mentioned = [name for name in view.columns if plain(name) in words]
    quoted = [name for name in view.columns if f'"{values.get(name)}"' in text]
    if quoted and not mentioned:
        return f" (column {' or '.join(quoted)})"
    names = list(view.columns)
    if mentioned:
        names = [name for name in mentioned if values.get(name, "") not in text]
    facts = [f"{name} {values[name][:LONGEST_VALUE]!r}" for name in names if name in values]
    return f" ({', '.join(facts)})" if facts else ""
