"""What Spark's Python workers do with the database: read slices and rows, copy rows into tables.

Each function returns one from Arrow batches to Arrow batches, for DataFrame.mapInArrow. Every
worker process imports this module, so it imports neither SQLAlchemy nor Spark.
"""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote

import pyarrow as pa  # type: ignore[import-untyped]

from sam_pipeline.spark_jobs.compute.slices import SliceReader
from sam_pipeline.spark_jobs.rules.levels import ALL_NAMES, FIGURES, NAMES, WITH_FIGURES

BATCH_ROWS = 20_000
WRITTEN = "rows bigint"

TIMES = ("start_time", "end_time")
# The columns of each report table, named as in the frames.
TABLES = {
    "timeline_segment": ("run_id", "level", *ALL_NAMES, *TIMES, "status"),
    **{f"{level}_figure": ("run_id", *NAMES[level], *FIGURES) for level in WITH_FIGURES},
}

Connection = Mapping[str, Any]
"""A path under the key `sqlite`, or the arguments of psycopg2.connect."""

Batches = Iterator[pa.RecordBatch]
Work = Callable[[Batches], Batches]


class TaskError(Exception):
    """A database error in a task, on one line: a worker can report only text."""


def reading_rows(connection: Connection, statement: str, schema: pa.Schema) -> Work:
    """Read the rows of a statement, once for each batch."""

    # Without a name for the cursor, PostgreSQL sends all rows at once.
    options = {} if "sqlite" in connection else {"name": "sam_report"}

    def read(batches: Batches) -> Batches:
        for _ in batches:
            with _opened(connection) as database, closing(database.cursor(**options)) as cursor:
                cursor.execute(statement)
                while rows := cursor.fetchmany(BATCH_ROWS):
                    columns = zip(zip(*rows, strict=True), schema.types, strict=True)
                    arrays = [pa.array(column, kind) for column, kind in columns]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return read


def reading_results(
    connection: Connection, reader: SliceReader, slices: Sequence[Mapping[str, Any]]
) -> Work:
    """Read the stretches of the slices whose numbers (`id`) are in the batches."""

    def read(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                with _opened(connection) as database:
                    yield from reader.read(database, slices[number])

    return read


def copying(connection: Connection, table: str) -> Work:
    """Copy rows into their PostgreSQL tables, in one transaction per task, and count them."""

    def copy(batches: Batches) -> Batches:
        from pyarrow import csv

        written = 0
        with _opened(connection) as database, database, database.cursor() as cursor:
            for batch in batches:
                for name, rows in by_table(pa.Table.from_batches([batch]), table):
                    for index, column in enumerate(rows.column_names):
                        if column in TIMES:
                            times = rows.column(index).cast(pa.timestamp("s", tz="UTC"))
                            rows = rows.set_column(index, column, times)
                    body = io.BytesIO()
                    csv.write_csv(rows, body, csv.WriteOptions(include_header=False))
                    body.seek(0)
                    # Strings are quoted, so an empty string is not a null.
                    columns = ", ".join(TABLES[name])
                    cursor.copy_expert(f"COPY {name} ({columns}) FROM STDIN (FORMAT csv)", body)
                    written += rows.num_rows
        yield pa.RecordBatch.from_pydict({"rows": [written]})

    return copy


def by_table(rows: pa.Table, table: str) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each table, with its columns; `{level}` in `table` stands for the row's level."""
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    for level in pc.unique(rows.column("level")).to_pylist():
        name = table.format(level=level)
        of_level = rows.filter(pc.equal(rows.column("level"), level))
        yield name, of_level.select(list(TABLES[name]))


@contextmanager
def _opened(connection: Connection) -> Iterator[Any]:
    """A connection to the database, closed at the end of the block.

    Raises:
        TaskError: any error of the driver.
    """
    try:
        if "sqlite" in connection:
            path = quote(connection["sqlite"])
            database: Any = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)
        else:
            import psycopg2

            database = psycopg2.connect(**connection)
        with closing(database):
            yield database
    except Exception as error:
        from sam_pipeline.sql.errors import DATABASE_ERRORS, message_of  # slow to import

        if isinstance(error, DATABASE_ERRORS):
            raise TaskError(message_of(error)) from None
        raise
