"""Inserts rows into views: all at once, or where the database refuses some, all the others.

On PostgreSQL, rows are copied into the staging table of their class, then stored as one set. This
bypasses the trigger, which would stage row by row. Both use the tables and functions of
30_staging.sql, so a row has the same effect either way.
"""

from __future__ import annotations

import io
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from sam_pipeline.schema.identity.identity import identity_of
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
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

logger = logging.getLogger(__name__)

LONGEST_VALUE = 80
"""Characters of a value that an error quotes; the dead letter has the whole value."""

Row = Mapping[str, str]
"""Texts by column of the view, without absent ones."""

SentRow = tuple[Row, str, str]
"""A row, the id of its message and the identity of its sender."""

SEPARATOR = "\x1f"
_NULL = r"\N"

_OPEN = text("SELECT open_staging(:class)")
_DUPLICATES = text("SELECT CAST(NULLIF(current_setting(:name, true), '') AS bigint[])")

# In the order of source_names() in 31_metric_output.sql, where the publisher is the last one.
_NAMES = (
    *("hostname", "serviceflavour", "metricname", "voname", "vofqan", "serviceuri"),
    *("servicetype", "sitename", "metrictype", "datatype", "role", "nagiosname", "encrypted"),
)
_RESULT = (
    *("names", "gatheredat", "monitoringhost"),
    *("metricstatus", "timestamp", "summarydata", "performancedata", "detailsdata", "messageid"),
)
_CONSTANT = (*_NAMES, "gatheredat", "monitoringhost")
"""Columns whose values every result of an instance repeats."""

_MAX_CACHED = 20_000
"""Cached beginnings of lines."""
_MAX_CACHED_LENGTH = 1000
"""Characters of a cached beginning of a line."""


class _ClassBroken(Exception):
    """No row of the class can be inserted."""


@dataclass
class Inserted:
    """The outcome of a batch: counts of rows and duplicates, and all records that failed.

    `accepted` are the rows and duplicates by the identity of their publisher. The counts by message
    have its id() as key; they are empty unless asked for.
    A duplicate is a row that changed nothing, since the database had it, or one that takes
    precedence.
    """

    failures: list[RecordFailure]
    counts: Counts = field(default_factory=Counts)
    accepted: Counter[str] = field(default_factory=Counter)
    rows_by_message: Counter[int] = field(default_factory=Counter)
    duplicates_by_message: Counter[int] = field(default_factory=Counter)


class _Stored(NamedTuple):
    """How many rows were duplicates, and the messages of these if asked for."""

    duplicates: int
    messages: Sequence[Message] = ()


def insert_batch(connection: Connection, batch: Batch, by_message: bool = False) -> Inserted:
    """Insert a batch in the caller's transaction; raises driver errors that a retry may solve.

    `by_message`: also count the rows and duplicates of each message.
    """
    inserted = Inserted(list(batch.failures))
    for _, part in sorted(batch.by_view.items()):
        rows = in_key_order(part.view, part.rows)
        try:
            with connection.begin_nested():
                refused, (duplicates, repeated) = _insert_rows(
                    connection, part.view, rows, by_message
                )
        except _ClassBroken as error:
            inserted.failures += [
                whole_message(message, CLASS_BROKEN, str(error)) for message in part.messages
            ]
            continue
        name = part.view.class_name
        inserted.counts.rows_by_class[name] = len(rows) - len(refused) - duplicates
        if duplicates:
            inserted.counts.duplicates_by_class[name] = duplicates
        inserted.failures += [*part.failures, *refused]
        inserted.accepted.update(map(attrgetter("publisher"), rows))
        inserted.accepted.subtract(identity_of(failure.message) for failure in refused)
        if by_message:
            inserted.rows_by_message.update(id(row.message) for row in rows)
            inserted.rows_by_message.subtract(id(failure.message) for failure in refused)
            inserted.rows_by_message.subtract(map(id, repeated))
            inserted.duplicates_by_message.update(map(id, repeated))
    return inserted


def in_key_order(view: ClassView, rows: Sequence[PendingRow]) -> Sequence[PendingRow]:
    """The rows of a built-in class in the order of its natural key.

    Loaders that insert the same rows in the same order wait for each other; in different orders
    they would deadlock.
    """
    if view.known is None:
        return rows
    key_names = {key.lower() for key in view.known.natural_key}
    key = [column for column in view.columns if column.lower() in key_names]
    absent = [""] * len(key)
    return sorted(rows, key=lambda pending: "\0".join(map(pending.row.values.get, key, absent)))


def _insert_rows(
    connection: Connection, view: ClassView, rows: Sequence[PendingRow], by_message: bool
) -> tuple[list[RecordFailure], _Stored]:
    """Insert all rows but those that the database refuses; returns these, and which of the others
    were duplicates.

    A part with such a row is halved until the row is found. After it, parts grow again from a
    single row, so that one bad row among n takes some log n attempts, and n of them about n.

    After an internal error of the server all rows are tried once more: they may not be at fault.
    """
    refused: list[RecordFailure] = []
    duplicates = 0
    known: list[Message] = []
    start, size = 0, len(rows)
    failing_until = 0  # a row before this one is known to be bad
    while start < len(rows):
        part = rows[start : start + size]
        outcome = _insert_part(connection, view, part, by_message, is_retry=failing_until > 0)
        if isinstance(outcome, _Stored):
            duplicates += outcome.duplicates
            known += outcome.messages
            start += len(part)
            size = max((failing_until - start) // 2, 1) if start < failing_until else 2 * size
        elif len(part) > 1:
            if not failing_until and view.bulk:
                with connection.begin_nested():
                    open_staging(connection, view)
            failing_until = start + len(part)
            size = len(part) // 2
        else:
            refused.append(outcome)
            start += 1
            size = 1
    return refused, _Stored(duplicates, known)


def _insert_part(
    connection: Connection,
    view: ClassView,
    rows: Sequence[PendingRow],
    by_message: bool,
    is_retry: bool,
) -> _Stored | RecordFailure:
    """Insert rows; returns which were duplicates, or if the database refuses any row, the failure
    of the first one.
    """
    try:
        with connection.begin_nested():
            if connection.dialect.name == "postgresql":
                facts = [(row.values, id_, publisher) for _, id_, publisher, row in rows]
                duplicates = copy_rows(connection, view, facts)
                if not duplicates or not by_message:
                    return _Stored(duplicates)
                if duplicates == len(rows):
                    return _Stored(duplicates, [row.message for row in rows])
                numbers = {"name": f"sam.duplicates_{view.name}"}
                noted = connection.execute(_DUPLICATES, numbers).scalar() or ()  # from 1 on
                return _Stored(duplicates, [rows[number - 1].message for number in noted])
            return _insert_one_by_one(connection, view, rows, by_message)
    except DRIVER_ERRORS as error:
        kind, text = kind_of(error), f"{view.name}: {message_of(error)}"
        if kind is Kind.RETRY:
            raise
        if kind is Kind.CLASS:
            raise _ClassBroken(text) from error
        if kind is Kind.HICCUP and not is_retry:
            logger.warning("trying once more: %s", text)
            return _insert_part(connection, view, rows, by_message, is_retry=True)
        message, _, _, row = rows[0]
        text += _unquoted_values(text, view, row.values)
        return RecordFailure(message, row.number, REFUSED, text, row.raw)


def _insert_one_by_one(
    connection: Connection, view: ClassView, rows: Sequence[PendingRow], by_message: bool
) -> _Stored:
    """Insert rows into a view of SQLite; returns which were duplicates.

    The trigger of a view can't say what it did, but a duplicate changes no row of any table, except
    that those of results are counted.
    """
    names = view.all_columns
    columns, marks = ", ".join(map(quoted, names)), ", ".join("?" * len(names))
    statement = f"INSERT INTO {quoted(view.name)} ({columns}) VALUES ({marks})"
    driver: Any = connection.connection.driver_connection
    cursor, unchanged, known = driver.cursor(), 0, []
    duplicates = first = _duplicate_results(connection)
    changes = driver.total_changes
    for message, message_id, publisher, row in rows:
        cursor.execute(statement, view.values(row.values, message_id, publisher))
        before, changes = changes, driver.total_changes
        unchanged += changes == before
        if by_message:
            last, duplicates = duplicates, _duplicate_results(connection)
            if changes == before or duplicates > last:
                known.append(message)
    return _Stored(unchanged + _duplicate_results(connection) - first, known)


def _duplicate_results(connection: Connection) -> int:
    """How many results were duplicates, ever."""
    return int(connection.exec_driver_sql("SELECT duplicates FROM known_key").scalar_one())


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


def copy_rows(connection: Connection, view: ClassView, rows: Sequence[SentRow]) -> int:
    """Store rows in the caller's transaction; returns how many were duplicates.

    Without a staging table it is unknown what the trigger did: none.
    """
    names = _RESULT if _has_joined_names(view) else view.all_columns
    into = f"pg_temp.{quoted(f'staged_{view.name}')}" if view.bulk else quoted(view.name)
    if view.bulk:
        open_staging(connection, view)
    driver: Any = connection.connection
    with driver.cursor() as cursor:
        # COPY is sent four times faster than INSERT.
        statement = f"COPY {into} ({', '.join(map(quoted, names))}) FROM STDIN"
        cursor.copy_expert(statement, io.BytesIO(copy_text(view, rows)))
    if not view.bulk:
        return 0
    load = f"SELECT {quoted(f'{view.name}_load')}()"
    loaded = connection.exec_driver_sql(load, execution_options={"no_parameters": True})
    return loaded.scalar() or 0  # the function of a site's own class may return void


def copy_text(view: ClassView, rows: Iterable[SentRow]) -> bytes:
    """The rows in the text format of COPY."""
    if _has_joined_names(view):
        lines = []
        for row, message_id, publisher in rows:
            get = row.get
            status = get("metricstatus", "")
            changing = (
                status.upper() if status.isascii() else status.encode().upper().decode(),
                get("timestamp"),
                get("summarydata"),
                get("performancedata"),
                get("detailsdata"),
                message_id,
            )
            constant = _constant_fields[(publisher, *map(get, _CONSTANT))]
            lines.append(f"{constant}\t{_line(changing)}")
    else:
        lines = [_line(view.values(*row)) for row in rows]
    # Encoded here, because an error while psycopg2 reads would look like a cancelled statement.
    return "".join(lines).encode()


def open_staging(connection: Connection, view: ClassView) -> None:
    """Create the staging table of a class, or empty it.

    A table that is created in a savepoint is gone after its rollback, and created again each time.
    """
    connection.execute(_OPEN, {"class": view.name})


def quoted(name: str) -> str:
    """An identifier of SQL."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _has_joined_names(view: ClassView) -> bool:
    """Whether the staging table has one column for all names of a row."""
    return view.bulk and view.known is METRIC_OUTPUT


class _ConstantFields(dict[tuple[str | None, ...], str]):
    """The first three fields of a line, from `names` on, by the publisher and the values of
    _CONSTANT.

    They are cached because joining them takes more than half the time of writing a line.
    """

    def __missing__(self, values: tuple[str | None, ...]) -> str:
        row = dict(zip(("publisher", *_CONSTANT), values, strict=True))
        host = row["hostname"] or ""
        # Only ASCII letters, like the database.
        row["hostname"] = host.lower() if host.isascii() else host.encode().lower().decode()
        if row["serviceflavour"] is None:
            row["serviceflavour"] = row["servicetype"]
        names = SEPARATOR.join(row[name] or "" for name in (*_NAMES, "publisher"))
        gatherer = (row["gatheredat"] or "", row["monitoringhost"] or "")
        fields = "\t".join(map(_field, (names, *gatherer)))
        if len(fields) <= _MAX_CACHED_LENGTH:
            if len(self) == _MAX_CACHED:
                self.clear()
            self[values] = fields
        return fields


_constant_fields = _ConstantFields()


def _line(values: Sequence[str | None]) -> str:
    line = "\t".join(["\0" if value is None else value for value in values])
    if line.count("\t") == len(values) - 1 and line.count("\0") == values.count(None):
        return _escaped(line).replace("\0", _NULL) + "\n"  # nearly always, and three times faster
    return "\t".join([_NULL if value is None else _field(value) for value in values]) + "\n"


def _field(value: str) -> str:
    return _escaped(value).replace("\t", r"\t")


def _escaped(text: str) -> str:
    # The backslash comes first. Several times faster than str.translate().
    return text.replace("\\", r"\\").replace("\n", r"\n").replace("\r", r"\r")
