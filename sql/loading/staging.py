"""Bulk loading into PostgreSQL: COPY into the staging table of a class, then store it as one set.

This bypasses the trigger, which would stage row by row. Both use the tables and functions of
30_staging.sql, so a row has the same effect either way.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, text

from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.sql.loading.catalogue import ClassView

Row = Mapping[str, str]
"""Texts by column of the view, without absent ones."""

SentRow = tuple[Row, str, str]
"""A row, the id of its message and the identity of who sent that."""

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


def copy_rows(connection: Connection, view: ClassView, rows: Sequence[SentRow]) -> int:
    """Store rows in the caller's transaction; returns how many were duplicates."""
    return store_text(connection, view, copy_text(view, rows))


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


def store_text(connection: Connection, view: ClassView, rows: bytes) -> int:
    """Store the result of `copy_text` in the caller's transaction; returns how many rows were
    duplicates. Without a staging table it is unknown what the trigger did: none.
    """
    columns = _RESULT if _has_joined_names(view) else view.all_columns
    into = f"pg_temp.{quoted(f'staged_{view.name}')}" if view.bulk else quoted(view.name)
    if view.bulk:
        open_staging(connection, view)
    driver: Any = connection.connection
    with driver.cursor() as cursor:
        # COPY is sent four times faster than INSERT.
        statement = f"COPY {into} ({', '.join(map(quoted, columns))}) FROM STDIN"
        cursor.copy_expert(statement, io.BytesIO(rows))
    if not view.bulk:
        return 0
    load = f"SELECT {quoted(f'{view.name}_load')}()"
    loaded = connection.exec_driver_sql(load, execution_options={"no_parameters": True})
    return loaded.scalar() or 0  # the function of a site's own class may return void


def duplicates_of_load(
    connection: Connection, view: ClassView, rows: int, duplicates: int
) -> Sequence[int]:
    """Which rows of the last `copy_rows` were duplicates, counted from 0; none if unknown."""
    if duplicates == rows:
        return range(rows)
    noted = connection.execute(_DUPLICATES, {"name": f"sam.duplicates_{view.name}"}).scalar()
    return [number - 1 for number in noted or ()]


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
    return view.bulk and view.name == METRIC_OUTPUT.name.lower()


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
