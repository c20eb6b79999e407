"""What Spark's Python workers do: read slices of the database, and copy rows into it.

Each is a function of Arrow batches, for DataFrame.mapInArrow. Every worker process imports this
module, so it imports little: no SQLAlchemy, nothing of Spark.
"""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote

import pyarrow as pa  # type: ignore[import-untyped]

from sam_pipeline.spark_jobs.compute.slices import Task, read_slice
from sam_pipeline.spark_jobs.rules.levels import ALL_NAMES, FIGURES, NAMES, WITH_FIGURES

BATCH_ROWS = 20_000
WRITTEN = "rows bigint"

TIMES = ("start_time", "end_time")
# The columns of each report table, as the frames have them.
TABLES = {
    "timeline_segment": ("run_id", "level", *ALL_NAMES, *TIMES, "status"),
    **{f"{level}_figure": ("run_id", *NAMES[level], *FIGURES) for level in WITH_FIGURES},
}

Connection = Mapping[str, Any]
"""A path (sqlite), or the arguments of psycopg2."""

Batches = Iterator[pa.RecordBatch]
Work = Callable[[Batches], Batches]


class TaskError(Exception):
    """What the database said in a task, in one line: only text comes back from a worker."""


def reading_rows(connection: Connection, statement: str, schema: pa.Schema) -> Work:
    """The rows of a statement; it is read once, whatever is asked."""

    def read(asked: Batches) -> Batches:
        for _ in asked:
            with _opened(connection) as database, closing(_cursor(database)) as cursor:
                cursor.execute(statement)
                while rows := cursor.fetchmany(BATCH_ROWS):
                    columns = zip(*rows, strict=True)
                    arrays = [
                        pa.array(c, each.type) for c, each in zip(columns, schema, strict=True)
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return read


def reading_results(
    connection: Connection, task: Task, slices: Sequence[Mapping[str, Any]]
) -> Work:
    """The stretches of the slices whose numbers (`id`) are asked for."""

    def read(asked: Batches) -> Batches:
        for batch in asked:
            for number in batch.column("id").to_pylist():
                with _opened(connection) as database:
                    yield from read_slice(database, task, slices[number])

    return read


def copying(connection: Connection, table: str) -> Work:
    """Copies rows into their tables, a task in one transaction (PostgreSQL); counts them."""

    def copy(batches: Batches) -> Batches:
        written = 0
        with _opened(connection) as database, database, database.cursor() as cursor:
            for batch in batches:
                for name, rows in by_table(pa.Table.from_batches([batch]), table):
                    _copy(cursor, name, rows)
                    written += rows.num_rows
        yield pa.RecordBatch.from_pydict({"rows": [written]})

    return copy


def by_table(rows: pa.Table, table: str) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each table, with just its columns; `{level}` in the name is the row's level."""
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    for level in pc.unique(rows.column("level")).to_pylist():
        name = table.format(level=level)
        of_level = rows.filter(pc.equal(rows.column("level"), level))
        yield name, of_level.select(list(TABLES[name]))


def _copy(cursor: Any, table: str, rows: pa.Table) -> None:
    from pyarrow import csv

    body = io.BytesIO()
    csv.write_csv(_with_timestamps(rows), body, csv.WriteOptions(include_header=False))
    body.seek(0)
    # Texts come quoted, so an empty one is not a null.
    cursor.copy_expert(f"COPY {table} ({', '.join(TABLES[table])}) FROM STDIN (FORMAT csv)", body)


def _with_timestamps(rows: pa.Table) -> pa.Table:
    for at, name in enumerate(rows.column_names):
        if name in TIMES:
            moments = rows.column(at).cast(pa.timestamp("s", tz="UTC"))
            rows = rows.set_column(at, name, moments)
    return rows


@contextmanager
def _opened(connection: Connection) -> Iterator[Any]:
    """The database, closed in the end.

    Raises:
        TaskError: whatever its driver raises.
    """
    try:
        with closing(_connect(connection)) as database:
            yield database
    except Exception as error:
        from sam_pipeline.sql.errors import DATABASE_ERRORS, words_of  # slow to import

        if isinstance(error, DATABASE_ERRORS):
            raise TaskError(words_of(error)) from None
        raise


def _connect(arguments: Connection) -> Any:
    if "sqlite" in arguments:
        path = quote(arguments["sqlite"])
        return sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)
    import psycopg2

    return psycopg2.connect(**arguments)


def _cursor(connection: Any) -> Any:
    """A cursor that fetches as it goes, so that it never fills the memory."""
    if isinstance(connection, sqlite3.Connection):
        return connection.cursor()
    cursor = connection.cursor(name="sam_report")
    cursor.itersize = BATCH_ROWS
    return cursor
