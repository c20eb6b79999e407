"""Rows into views: all at once, and where one can't be stored, the others all the same."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, column, insert, table

from sam_pipeline.schema.records.classes import built_in
from sam_pipeline.sql.errors import DRIVER_ERRORS, Kind, kind_of, message_of
from sam_pipeline.sql.loading.batch import Batch, Failure, Pending, ViewBatch
from sam_pipeline.sql.loading.catalogue import ClassView
from sam_pipeline.sql.loading.staging import store

REFUSED = "refused-by-database"

TOLD = 80
"""So many characters of a value are in an error; the dead letter holds all of it."""


class _ClassBroken(Exception):
    """No row of the class can be stored."""


@dataclass
class Inserted:
    """How many rows of each class are stored, and what could not be."""

    rows_by_class: dict[str, int]
    failures: list[Failure]

    @property
    def rows(self) -> int:
        return sum(self.rows_by_class.values())


def insert_batch(connection: Connection, batch: Batch) -> Inserted:
    """Store the rows in the caller's transaction.

    Raises:
        the driver's error, where the same may succeed later.
    """
    done = Inserted({}, list(batch.failures))
    for _, part in sorted(batch.by_view.items()):
        _insert_class(connection, part, done)
    return done


def _insert_class(connection: Connection, part: ViewBatch, done: Inserted) -> None:
    rows = part.rows()
    try:
        with connection.begin_nested():
            refused = _insert_rows(connection, part.view, rows)
    except _ClassBroken as error:
        done.failures += part.broken(str(error))
        return
    done.rows_by_class[_class_name(part.view)] = len(rows) - len(refused)
    done.failures += [*part.refused(), *refused]


def _class_name(view: ClassView) -> str:
    """As the wire spells it: PostgreSQL's catalogue has lower case alone."""
    known = built_in(view.name)
    return known.name if known else view.name


def _insert_rows(connection: Connection, view: ClassView, rows: Sequence[Pending]) -> list[Failure]:
    """Store all rows but the bad ones, found by halving."""
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
            return [_refused(view, rows[0], text)]
    half = len(rows) // 2
    return [
        *_insert_rows(connection, view, rows[:half]),
        *_insert_rows(connection, view, rows[half:]),
    ]


def _refused(view: ClassView, one: Pending, text: str) -> Failure:
    told = text + _values_meant(text, view, one.row.values)
    return Failure(one.message, one.row.number, REFUSED, told, one.row.raw)


def _values_meant(text: str, view: ClassView, values: Mapping[str, str]) -> str:
    """The values of the columns that an error names, or of all, as far as it does not tell them.

    Triggers of SQLite can't name a value, constraints name columns of tables (host_name), and a
    value that is none of its type is told without the column.
    """
    words = {_plain(word) for word in re.findall(r"\w+", text)}
    named = [name for name in view.columns if _plain(name) in words]
    told = [name for name in view.columns if f'"{values.get(name)}"' in text]
    if told and not named:
        return f" (column {' or '.join(told)})"
    meant = [name for name in named if values.get(name, "") not in text] if named else view.columns
    facts = [f"{name} {values[name][:TOLD]!r}" for name in meant if name in values]
    return f" ({', '.join(facts)})" if facts else ""


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _write(connection: Connection, view: ClassView, rows: Sequence[Pending]) -> None:
    if connection.dialect.name == "postgresql":
        store(connection, view, [(one.row.values, one.message_id) for one in rows])
        return
    names = view.all_columns
    into = insert(table(view.name, *map(column, names)))
    connection.execute(into, [dict(zip(names, _values(view, one), strict=True)) for one in rows])


def _values(view: ClassView, one: Pending) -> list[str | None]:
    values: list[str | None] = [one.row.values.get(name) for name in view.columns]
    return [*values, one.message_id] if view.message_id_column else values
