"""Reads rows of the database as Arrow tables, in parts of bounded size.

PostgreSQL sends them as CSV, which pyarrow parses several times faster than the server writes it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import csv
from sqlalchemy import Connection, text

_BLOCK_BYTES = 8 * 1024 * 1024
_BUFFER_BYTES = 1024 * 1024
_FETCH_ROWS = 50_000


def read_rows(
    connection: Connection, statement: str, parameters: Mapping[str, Any], schema: pa.Schema
) -> Iterator[pa.Table]:
    """The rows of a statement whose columns have these types; texts may be null.

    A time is a timestamp on PostgreSQL, and epoch seconds on SQLite.
    """
    if connection.dialect.name == "sqlite":
        rows = connection.execute(text(statement), parameters)
        while fetched := rows.fetchmany(_FETCH_ROWS):
            columns = zip(*fetched, strict=True)
            yield pa.table([_array(*each) for each in zip(columns, schema, strict=True)], schema)
        return
    for batch in _copied(connection, statement, parameters, schema):
        yield pa.Table.from_batches([batch])


def read_table(
    connection: Connection, statement: str, parameters: Mapping[str, Any], schema: pa.Schema
) -> pa.Table:
    """All rows of a statement."""
    return pa.concat_tables(
        [schema.empty_table(), *read_rows(connection, statement, parameters, schema)]
    ).combine_chunks()


def _array(values: Any, field: pa.Field) -> pa.Array:
    if pa.types.is_timestamp(field.type):
        return pa.array(values, pa.int64()).cast(pa.timestamp("s", "UTC")).cast(field.type)
    return pa.array(values, field.type)


def _copied(
    connection: Connection, statement: str, parameters: Mapping[str, Any], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Copy rows through a pipe: one thread receives what this one parses."""
    driver: Any = connection.connection.driver_connection
    compiled = text(statement).compile(dialect=connection.dialect)
    failures: list[BaseException] = []
    with driver.cursor() as cursor:
        query = cursor.mogrify(str(compiled), compiled.construct_params(parameters)).decode()
        cursor.execute("SET LOCAL datestyle = 'ISO'")
        reading_end, writing_end = os.pipe()

        def receive() -> None:
            try:
                with os.fdopen(writing_end, "wb", _BUFFER_BYTES) as pipe:
                    cursor.copy_expert(f"COPY ({query}) TO STDOUT (FORMAT csv)", pipe)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=receive, name="copy")
        thread.start()
        is_complete = False
        try:
            with os.fdopen(reading_end, "rb", 0) as pipe:
                yield from _parsed(pipe, schema)
            is_complete = True
        finally:
            if not is_complete:  # the server must not wait for a reader that has gone
                with suppress(Exception):
                    driver.cancel()
            thread.join()
            if not is_complete or failures:
                connection.invalidate()
        if failures:
            raise failures[0]


def _parsed(pipe: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        yield from csv.open_csv(
            pipe,
            csv.ReadOptions(column_names=schema.names, block_size=_BLOCK_BYTES),
            csv.ParseOptions(newlines_in_values=True),
            # PostgreSQL quotes an empty text, and not a NULL.
            csv.ConvertOptions(
                column_types=schema,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        if str(error) != "Empty CSV file":
            raise
