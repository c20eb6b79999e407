"""The database as Spark sees it: the only module that knows URLs and how tasks connect.

No JDBC driver is needed: each task opens the database in Python, and reads or writes Arrow batches.
On SQLite only the driver writes, as a file has one writer at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, _parse_datatype_string
from sqlalchemy import Engine, text
from sqlalchemy.dialects import sqlite

from sam_pipeline.spark_jobs.compute import slices
from sam_pipeline.spark_jobs.compute.session import PARTITIONS
from sam_pipeline.spark_jobs.compute.slices import SliceReader
from sam_pipeline.spark_jobs.compute.workers import (
    BATCH_ROWS,
    TABLES,
    WRITTEN,
    by_table,
    copying,
    reading_results,
    reading_rows,
)
from sam_pipeline.sql.database.engine import postgresql_arguments, reading, writing

_INSTANCES = (
    "instance_id int, host_name string, service_flavour string, metric_name string, vo string,"
    " fqan string"
)

Persist = Callable[[DataFrame], DataFrame]


class Storage:
    """Reads and writes the database of a session."""

    def __init__(self, spark: SparkSession, engine: Engine) -> None:
        self.engine = engine
        self.dialect = engine.dialect.name
        self.parallelism = spark.sparkContext.defaultParallelism
        self._spark = spark
        self._connection: Mapping[str, Any] = (
            {"sqlite": engine.get_execution_options()["sam_file"]}
            if self.dialect == "sqlite"
            else {
                **engine.dialect.create_connect_args(engine.url)[1],
                **postgresql_arguments(engine.url),
            }
        )

    def partitions(self, days: int) -> int:
        """The number of partitions for a number of days: one per day, but at least one per core."""
        return max(int(self._spark.conf.get(PARTITIONS) or 1), days)

    def compiled(self, statement: str) -> str:
        """The statement with its named parameters in the style of the database driver."""
        if self.dialect == "sqlite":
            return str(text(statement).compile(dialect=sqlite.dialect(paramstyle="named")))
        return str(text(statement).compile(dialect=self.engine.dialect))

    def stretches(self, reader: SliceReader, parameters: Sequence[Mapping[str, Any]]) -> DataFrame:
        """The stretches of results (slices.COLUMNS): one task for the parameters of each slice."""
        work = reading_results(self._connection, reader, parameters)
        numbers = self._spark.range(0, len(parameters), 1, len(parameters))
        return numbers.mapInArrow(work, slices.COLUMNS)

    def instances(self) -> DataFrame:
        """The names of all metric instances."""
        schema = _arrow_schema(_INSTANCES)
        statement = f"SELECT {', '.join(schema.names)} FROM report_instance"
        work = reading_rows(self._connection, statement, schema)
        return self._spark.range(0, 1, 1, 1).mapInArrow(work, _INSTANCES)

    def table(self, columns: str, rows: Sequence[Sequence[object]]) -> DataFrame:
        """A small table from rows, with columns as in "day int, site string"."""
        schema = _arrow_schema(columns)
        values = list(zip(*rows, strict=True)) or [()] * len(schema)
        arrays = [pa.array(v, kind) for v, kind in zip(values, schema.types, strict=True)]
        return self._spark.createDataFrame(pa.Table.from_arrays(arrays, schema=schema))

    def write(self, frame: DataFrame, table: str) -> int:
        """Append rows, and return their number; `{level}` in `table` stands for the row's level.

        The rows carry their run_id, so no view shows them before that run is published.
        """
        if self.dialect == "postgresql":
            counts = frame.mapInArrow(copying(self._connection, table), WRITTEN).toArrow()
            return sum(counts.column("rows").to_pylist())
        rows = frame.toArrow()
        with writing(self.engine) as connection:
            for name, batch in by_table(rows, table):
                columns = TABLES[name]
                values = ", ".join(f":{column}" for column in columns)
                statement = text(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({values})")
                for part in batch.to_batches(max_chunksize=BATCH_ROWS):
                    # The sqlite3 module does not accept decimals.
                    values_of = [
                        {k: float(v) if isinstance(v, Decimal) else v for k, v in row.items()}
                        for row in part.to_pylist()
                    ]
                    connection.execute(statement, values_of)
        return int(rows.num_rows)

    def segments_of(self, run_ids: Iterable[int]) -> int:
        """The number of segments stored by these runs."""
        numbers = ", ".join(str(int(run_id)) for run_id in run_ids)
        statement = f"SELECT count(*) FROM timeline_segment WHERE run_id IN ({numbers})"
        with reading(self.engine) as connection:
            return int(connection.scalar(text(statement)) or 0)


@contextmanager
def persisting() -> Iterator[Persist]:
    """Persist frames that are read several times, until the end of the block."""
    frames: list[DataFrame] = []

    def persist(frame: DataFrame) -> DataFrame:
        frames.append(frame.persist())
        return frame

    try:
        yield persist
    finally:
        for frame in frames:
            frame.unpersist()


def _arrow_schema(columns: str) -> pa.Schema:
    parsed = _parse_datatype_string(columns)
    assert isinstance(parsed, StructType)
    return to_arrow_schema(parsed)
