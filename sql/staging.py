"""The bulk door of PostgreSQL: COPY into the staging table of a class, then store all as a set.

Passes the trigger by, which would stage row by row what arrives in bulk. The tables and functions
are those of 30_triggers.sql, so what becomes of a row is the same through either door.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, text

from schema.classes import METRIC_OUTPUT
from sql.catalogue import ClassView

Row = Mapping[str, str]
"""Texts by column of the view; what is absent has no key."""

SEPARATOR = "\x1f"

_OPEN = text("SELECT open_staging(:class)")

# As source_names() in 30_triggers.sql joins them, host and flavour before.
_NAMES = (
    "metricname",
    "voname",
    "vofqan",
    "serviceuri",
    "servicetype",
    "sitename",
    "metrictype",
    "datatype",
    "monitoringhost",
    "role",
    "nagiosname",
    "encrypted",
)
_RESULT = (
    "names",
    "gatheredat",
    "metricstatus",
    "timestamp",
    "summarydata",
    "performancedata",
    "detailsdata",
    "messageid",
)


def store(connection: Connection, view: ClassView, rows: Sequence[tuple[Row, str]]) -> None:
    """Store rows, each with the id of its message, in the caller's transaction."""
    store_text(connection, view, copy_text(view, rows))


def copy_text(view: ClassView, rows: Iterable[tuple[Row, str]]) -> bytes:
    """The rows as COPY reads them."""
    if _is_joined(view):
        lines = [_line(_staged_result(row, id_)) for row, id_ in rows]
    else:
        lines = [_line(values) for values in _as_view(view, rows)]
    # Encoded here: an error while psycopg2 reads would look like a cancelled statement.
    return "".join(lines).encode()


def store_text(connection: Connection, view: ClassView, rows: bytes) -> None:
    """Store what copy_text() gives."""
    columns = _RESULT if _is_joined(view) else view.all_columns
    into = f"pg_temp.{_quoted(f'staged_{view.name}')}" if view.bulk else _quoted(view.name)
    if view.bulk:
        connection.execute(_OPEN, {"class": view.name})
    driver: Any = connection.connection
    with driver.cursor() as cursor:
        # COPY: four times quicker to send than INSERT.
        statement = f"COPY {into} ({', '.join(map(_quoted, columns))}) FROM STDIN"
        cursor.copy_expert(statement, io.BytesIO(rows))
    if view.bulk:
        connection.exec_driver_sql(
            f"SELECT {_quoted(f'{view.name}_load')}()", execution_options={"no_parameters": True}
        )


def _is_joined(view: ClassView) -> bool:
    return view.bulk and view.name == METRIC_OUTPUT.name.lower()


def _as_view(view: ClassView, rows: Iterable[tuple[Row, str]]) -> Iterable[Sequence[str | None]]:
    for row, message_id in rows:
        values = [row.get(name) for name in view.columns]
        yield [*values, message_id] if view.message_id_column else values


def _staged_result(row: Row, message_id: str) -> Sequence[str | None]:
    get = row.get
    flavour = get("serviceflavour", get("servicetype", ""))
    names = [_lower(get("hostname", "")), flavour, *[get(name, "") for name in _NAMES]]
    return (
        SEPARATOR.join(names),
        get("gatheredat", ""),
        _upper(get("metricstatus", "")),
        get("timestamp"),
        get("summarydata"),
        get("performancedata"),
        get("detailsdata"),
        message_id,
    )


def _lower(value: str) -> str:
    """In ASCII alone, as the database does."""
    return value.lower() if value.isascii() else value.encode().lower().decode()


def _upper(value: str) -> str:
    return value.upper() if value.isascii() else value.encode().upper().decode()


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _line(values: Sequence[str | None]) -> str:
    return "\t".join(map(_field, values)) + "\n"


def _field(value: str | None) -> str:
    if value is None:
        return r"\N"
    # The backslash first. Several times quicker than str.translate().
    escaped = value.replace("\\", r"\\").replace("\t", r"\t")
    return escaped.replace("\n", r"\n").replace("\r", r"\r")
