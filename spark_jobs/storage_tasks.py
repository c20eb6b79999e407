"""What Spark's Python workers do: read slices of the database, and copy rows into it.

Every worker process imports this module, so it imports little: no SQLAlchemy, nothing of Spark but
the data source's interface.
"""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from spark_jobs.levels import ALL_NAMES, FIGURES, NAMES, WITH_FIGURES

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

FORMAT = "sam"
# The option's name makes Spark leave its value out of plans and logs: a password is in it.
CONNECTION = "secret_connection"
BATCH_ROWS = 20_000

TIMES = ("start_time", "end_time")
# The columns of each report table, as the frames have them.
TABLES = {
    "timeline_segment": ("run_id", "level", *ALL_NAMES, *TIMES, "status"),
    **{f"{level}_figure": ("run_id", *NAMES[level], *FIGURES) for level in WITH_FIGURES},
}
_TYPES = {"string": pa.string(), "integer": pa.int32(), "long": pa.int64(), "boolean": pa.bool_()}


class SamSource(DataSource):
    """Statements of the database as a Spark source, and its report tables as a sink."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Results(self.options) if "results" in self.options else _Rows(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _Writer(self.options)


def by_table(rows: pa.Table, table: str) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each table, with just its columns."""
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    for level in pc.unique(rows.column("level")).to_pylist():
        name = table.format(level=level)
        of_level = rows.filter(pc.equal(rows.column("level"), level))
        yield name, of_level.select(list(TABLES[name]))


class _Rows(DataSourceReader):
    """The rows of a statement, a slice for each set of its parameters."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = pa.schema([(each.name, _TYPES[each.dataType.typeName()]) for each in schema])
        self._connection = json.loads(options[CONNECTION])
        self._statement = options["statement"]
        self._slices = json.loads(options["slices"])

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(bound) for bound in self._slices]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        with closing(connect(self._connection)) as database, closing(_cursor(database)) as cursor:
            cursor.execute(self._statement, partition.value)
            while rows := cursor.fetchmany(BATCH_ROWS):
                yield self._batch(rows)

    def _batch(self, rows: Sequence[Sequence[Any]]) -> RecordBatch:
        columns = zip(*rows, strict=True)
        arrays = [pa.array(c, each.type) for c, each in zip(columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Results(DataSourceReader):
    """Results as stretches (spark_jobs.reading), a slice of time each."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._connection = json.loads(options[CONNECTION])
        self._task = json.loads(options["results"])
        self._slices = json.loads(options["slices"])

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(bound) for bound in self._slices]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        from spark_jobs.reading import read_slice

        with closing(connect(self._connection)) as database:
            yield from read_slice(database, self._task, partition.value)


class _Writer(DataSourceArrowWriter):
    """Copies the batches of a task in one transaction (PostgreSQL)."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._connection = json.loads(options[CONNECTION])
        self._table = options["table"]

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        with closing(connect(self._connection)) as database, database, database.cursor() as cursor:
            for batch in iterator:
                for name, rows in by_table(pa.Table.from_batches([batch]), self._table):
                    _copy(cursor, name, rows)
        return WriterCommitMessage()


def connect(arguments: Mapping[str, Any]) -> Any:
    if "sqlite" in arguments:
        path = quote(arguments["sqlite"])
        return sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)
    import psycopg2

    return psycopg2.connect(**arguments)


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


def _cursor(connection: Any) -> Any:
    """A cursor that fetches as it goes, so that a slice never fills the memory."""
    if isinstance(connection, sqlite3.Connection):
        return connection.cursor()
    cursor = connection.cursor(name="sam_report")
    cursor.itersize = BATCH_ROWS
    return cursor
