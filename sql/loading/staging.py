"""The bulk door of PostgreSQL: COPY into the staging table of a class, then store all as one set.

It bypasses the trigger, which would stage row by row. The tables and functions are those of
30_triggers.sql, so what becomes of a row is the same through either door.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, text

from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.sql.loading.catalogue import ClassView

Row = Mapping[str, str]
"""Texts by column of the view; absent values have no key."""

SEPARATOR = "\x1f"

_OPEN = text("SELECT open_staging(:class)")

# In the order of source_names() in 30_triggers.sql.
_NAMES = (
    *("hostname", "serviceflavour", "metricname", "voname", "vofqan", "serviceuri"),
    *("servicetype", "sitename", "metrictype", "datatype", "monitoringhost", "role"),
    *("nagiosname", "encrypted"),
)
_RESULT = (
    *("names", "gatheredat"),
    *("metricstatus", "timestamp", "summarydata", "performancedata", "detailsdata", "messageid"),
)
_LASTING = (*_NAMES, "gatheredat")
"""Values that every result of an instance repeats."""

_REMEMBERED = 20_000
_LONGEST = 1000
"""How many lasting parts of lines are remembered, and how many characters of each at most."""


def store(connection: Connection, view: ClassView, rows: Sequence[tuple[Row, str]]) -> None:
    """Store rows, each with the id of its message, in the caller's transaction."""
    store_text(connection, view, copy_text(view, rows))


def copy_text(view: ClassView, rows: Iterable[tuple[Row, str]]) -> bytes:
    """The rows as COPY reads them."""
    if _is_joined(view):
        lines = [_result_line(row, id_) for row, id_ in rows]
    else:
        lines = []
        for row, message_id in rows:
            values = [row.get(name) for name in view.columns]
            lines.append(_line([*values, message_id] if view.message_id_column else values))
    # Encoded here: an error while psycopg2 reads would look like a cancelled statement.
    return "".join(lines).encode()


def store_text(connection: Connection, view: ClassView, rows: bytes) -> None:
    """Store the result of copy_text()."""
    columns = _RESULT if _is_joined(view) else view.all_columns
    into = f"pg_temp.{_quoted(f'staged_{view.name}')}" if view.bulk else _quoted(view.name)
    if view.bulk:
        connection.execute(_OPEN, {"class": view.name})
    driver: Any = connection.connection
    with driver.cursor() as cursor:
        # COPY is four times quicker to send than INSERT.
        statement = f"COPY {into} ({', '.join(map(_quoted, columns))}) FROM STDIN"
        cursor.copy_expert(statement, io.BytesIO(rows))
    if view.bulk:
        connection.exec_driver_sql(
            f"SELECT {_quoted(f'{view.name}_load')}()", execution_options={"no_parameters": True}
        )


def _is_joined(view: ClassView) -> bool:
    return view.bulk and view.name == METRIC_OUTPUT.name.lower()


def _result_line(row: Row, message_id: str) -> str:
    get = row.get
    changing = (
        _upper(get("metricstatus", "")),
        get("timestamp"),
        get("summarydata"),
        get("performancedata"),
        get("detailsdata"),
        message_id,
    )
    return f"{_lasting[tuple(map(get, _LASTING))]}\t{_line(changing)}"


class _Lasting(dict[tuple[str | None, ...], str]):
    """`lasting[values]`: the values of _LASTING as the first two fields of a line, `names` and
    `gatheredat`. Joining them is the larger half of writing a line."""

    def __missing__(self, values: tuple[str | None, ...]) -> str:
        row = dict(zip(_LASTING, values, strict=True))
        row["hostname"] = _lower(row["hostname"] or "")
        if row["serviceflavour"] is None:
            row["serviceflavour"] = row["servicetype"]
        names = SEPARATOR.join(row[name] or "" for name in _NAMES)
        fields = f"{_field(names)}\t{_field(row['gatheredat'] or '')}"
        if len(fields) <= _LONGEST:
            if len(self) == _REMEMBERED:
                self.clear()
            self[values] = fields
        return fields


_lasting = _Lasting()


def _lower(value: str) -> str:
    """In ASCII alone, as the database does."""
    return value.lower() if value.isascii() else value.encode().lower().decode()


def _upper(value: str) -> str:
    return value.upper() if value.isascii() else value.encode().upper().decode()


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _line(values: Sequence[str | None]) -> str:
    line = "\t".join([r"\N" if value is None else value for value in values])
    plain = line.count("\t") == len(values) - 1 and line.count("\\") == values.count(None)
    if plain and "\n" not in line and "\r" not in line:  # quick to test, and true of nearly all
        return f"{line}\n"
    return "\t".join(map(_field, values)) + "\n"


def _field(value: str | None) -> str:
    if value is None:
        return r"\N"
    # The backslash first. Several times quicker than str.translate().
    escaped = value.replace("\\", r"\\").replace("\t", r"\t")
    return escaped.replace("\n", r"\n").replace("\r", r"\r")
