"""Rows into views: all at once, and if some can't be stored, all the others."""

from __future__ import annotations

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
    Pending,
    RecordFailure,
    whole,
)
from sam_pipeline.sql.loading.catalogue import ClassView
from sam_pipeline.sql.loading.staging import store

LONGEST_VALUE = 80
"""How many characters of a value an error quotes; the dead letter has all of it."""


class _ClassBroken(Exception):
    """No row of the class can be stored."""


@dataclass
class Inserted:
    """How many rows of each class are stored, and the records that could not be."""

    rows_by_class: dict[str, int]
    failures: list[RecordFailure]

    @property
    def rows(self) -> int:
        return sum(self.rows_by_class.values())


def insert_batch(connection: Connection, batch: Batch) -> Inserted:
    """Store the rows in the caller's transaction.

    Raises:
        the driver's error, if a retry may succeed.
    """
    inserted = Inserted({}, list(batch.failures))
    for name, part in sorted(batch.by_view.items()):
        rows = part.rows()
        try:
            with connection.begin_nested():
                refused = _insert_rows(connection, part.view, rows)
        except _ClassBroken as error:
            inserted.failures += [
                whole(message, CLASS_BROKEN, str(error)) for message, _ in part.decoded
            ]
            continue
        known = built_in(name)  # PostgreSQL's catalogue has lower case alone
        inserted.rows_by_class[known.name if known else name] = len(rows) - len(refused)
        inserted.failures += [*part.refused(), *refused]
    return inserted


def _insert_rows(
    connection: Connection, view: ClassView, rows: Sequence[Pending]
) -> list[RecordFailure]:
    """Store all rows but the bad ones, which halving finds."""
    if not rows:
        return []
    try:
        with connection.begin_nested():
            _write(connection, view, rows)
        return []
    except DRIVER_ERRORS as error:
        kind, text = kind_of(error), f"{view.name}: {message_of(error)}"
        if kind is Kind.RETRY:
            raise
        if kind is Kind.CLASS:
            raise _ClassBroken(text) from error
        if len(rows) == 1:
            [(message, _, row)] = rows
            text += _values_meant(text, view, row.values)
            return [RecordFailure(message, row.number, REFUSED, text, row.raw)]
    half = len(rows) // 2
    return [
        *_insert_rows(connection, view, rows[:half]),
        *_insert_rows(connection, view, rows[half:]),
    ]


def _write(connection: Connection, view: ClassView, rows: Sequence[Pending]) -> None:
    if connection.dialect.name == "postgresql":
        store(connection, view, [(row.values, message_id) for _, message_id, row in rows])
        return
    into = insert(table(view.name, *map(column, view.all_columns)))
    values: list[dict[str, str | None]] = []
    for _, message_id, row in rows:
        values.append({name: row.values.get(name) for name in view.columns})
        if view.message_id_column:
            values[-1][view.message_id_column] = message_id
    connection.execute(into, values)


def _values_meant(text: str, view: ClassView, values: Mapping[str, str]) -> str:
    """The values that an error is about and does not quote, or all of them.

    Triggers of SQLite can't name a value, constraints name columns of tables (host_name), and an
    error about a value that does not fit its type names no column.
    """

    def plain(name: str) -> str:
        return name.replace("_", "").lower()

    mentioned = set(map(plain, re.findall(r"\w+", text)))
    named = [name for name in view.columns if plain(name) in mentioned]
    quoted = [name for name in view.columns if f'"{values.get(name)}"' in text]
    if quoted and not named:
        return f" (column {' or '.join(quoted)})"
    meant = [name for name in named if values.get(name, "") not in text] if named else view.columns
    facts = [f"{name} {values[name][:LONGEST_VALUE]!r}" for name in meant if name in values]
    return f" ({', '.join(facts)})" if facts else ""
