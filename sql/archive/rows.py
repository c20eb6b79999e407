"""Reads rows of the database as Arrow tables, and the names that results refer to by ids.

PostgreSQL sends rows as CSV, which pyarrow parses several times faster than the server writes it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow import csv
from sqlalchemy import Connection, text

from sam_pipeline.sql.archive.digests import Hashes, Integers, instance_keys, name_hashes

_BLOCK_BYTES = 8 * 1024 * 1024
_BUFFER_BYTES = 1024 * 1024
_FETCH_ROWS = 50_000

Codes = npt.NDArray[np.int32]

INSTANCE = ("host_name", "service_flavour", "metric_name", "vo", "fqan")
_OF_SOURCE = (
    *("service_uri", "service_type", "metric_type", "data_type"),
    *("role", "nagios_name", "encrypted", "publisher"),
)
SOURCES = ("archive_source", "source_id", {"site_hint": "site_name"} | {n: n for n in _OF_SOURCE})
GATHERERS = ("gatherer", "gatherer_id", {n: n for n in ("gathered_at", "monitoring_host")})
"""View, id, and columns of the file with those of the view."""


def read_rows(
    connection: Connection, statement: str, parameters: Mapping[str, Any], schema: pa.Schema
) -> Iterator[pa.Table]:
    """The rows of a statement whose columns have these types; texts may be null.

    A time is a timestamp on PostgreSQL, and epoch seconds on SQLite.
    """
    if connection.dialect.name == "sqlite":
        rows = connection.execute(text(statement), parameters)
        while fetched := rows.fetchmany(_FETCH_ROWS):
            arrays = []
            for values, field in zip(zip(*fetched, strict=True), schema, strict=True):
                if pa.types.is_timestamp(field.type):
                    seconds = pa.array(values, pa.int64()).cast(pa.timestamp("s", "UTC"))
                    arrays.append(seconds.cast(field.type))
                else:
                    arrays.append(pa.array(values, field.type))
            yield pa.table(arrays, schema)
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


class NamesById(NamedTuple):
    """Columns whose value an id determines: codes and dictionary of each, by `row_of[id]`."""

    columns: Mapping[str, tuple[Codes, pa.Array]]
    row_of: Integers

    def encoded(self, ids: Any) -> dict[str, pa.Array]:
        """The columns for rows with these ids, with dictionaries of the names that they use."""
        rows, columns = self.row_of[ids], {}
        for name, (all_codes, values) in self.columns.items():
            codes = all_codes[rows]
            used = np.bincount(codes, minlength=len(values)) > 0
            code_of = (np.cumsum(used) - 1).astype(np.int32)
            columns[name] = pa.DictionaryArray.from_arrays(
                pa.array(code_of[codes]), values.filter(pa.array(used))
            )
        return columns


class SortedInstances(NamedTuple):
    """The metric instances in the order of their names, numbered from 0; `key` as in digests.py.

    `rank_of[instance_id]` is the number of an instance.
    """

    names: NamesById
    rank_of: Integers
    key: Hashes


def read_instances(connection: Connection) -> SortedInstances:
    statement = f"SELECT instance_id, {', '.join(INSTANCE)} FROM report_instance"
    rows = read_table(connection, statement, {}, _schema("instance_id", INSTANCE))
    rows = rows.sort_by([(name, "ascending") for name in INSTANCE])
    columns = {name: _encoded(rows[name]) for name in INSTANCE}
    (host, hosts), (flavour, flavours) = columns["host_name"], columns["service_flavour"]
    pairs, endpoint = np.unique(
        flavour.astype(np.int64) * max(len(hosts), 1) + host, return_inverse=True
    )
    host_names, flavour_names = hosts.to_pylist(), flavours.to_pylist()
    endpoints = [
        (flavour_names[pair // len(hosts)], host_names[pair % len(hosts)]) for pair in pairs
    ]
    others = (columns[name] for name in ("metric_name", "vo", "fqan"))
    key = instance_keys(
        name_hashes(endpoints)[endpoint],
        *(name_hashes(values.to_pylist())[codes] for codes, values in others),
    )
    count = np.arange(len(rows))
    return SortedInstances(NamesById(columns, count), _row_of(rows["instance_id"]), key)


def read_names(connection: Connection, view: str, key: str, names: Mapping[str, str]) -> NamesById:
    """The names of SOURCES or GATHERERS by their ids."""
    statement = f"SELECT {key}, {', '.join(names.values())} FROM {view}"
    rows = read_table(connection, statement, {}, _schema(key, tuple(names)))
    return NamesById({name: _encoded(rows[name]) for name in names}, _row_of(rows[key]))


def _schema(key: str, names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([(key, pa.int64()), *((name, pa.string()) for name in names)])


def _encoded(column: pa.ChunkedArray) -> tuple[Codes, pa.Array]:
    """The codes of names and their dictionary, which is sorted; no name is ''."""
    names = pc.fill_null(column, "").combine_chunks()
    values = pc.unique(names)
    values = values.take(pc.sort_indices(values))
    codes: Codes = pc.index_in(names, values).to_numpy(zero_copy_only=False).astype(np.int32)
    return codes, values


def _row_of(ids: pa.ChunkedArray) -> Integers:
    """The row of each id; ids are dense, since sequences number them."""
    numbers = ids.to_numpy()
    row_of = np.zeros(int(numbers.max()) + 1 if len(numbers) else 0, np.int64)
    row_of[numbers] = np.arange(len(numbers))
    return row_of
