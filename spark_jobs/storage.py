"""Where Spark reads and writes: only here (and in what tasks run, storage_tasks) are
statements, URLs and drivers known.

No jar is needed: a Python data source opens the database in each task and yields Arrow batches.
On PostgreSQL the tasks write, too; on SQLite the driver is the single writer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, _parse_datatype_string
from sqlalchemy import Engine, text

from spark_jobs.database_inputs import WINDOW
from spark_jobs.days import DAY_S
from spark_jobs.session import PARTITIONS
from spark_jobs.status import STATUSES
from spark_jobs.storage_tasks import BATCH_ROWS, CONNECTION, FORMAT, TABLES, SamSource, by_table
from sql.engine import postgresql_arguments, reading, writing

# Several slices of time a core: they come out uneven.
_SLICES_PER_CORE = 2

_RANK = " ".join(f"WHEN '{name}' THEN {code}" for code, name in enumerate(STATUSES))
# Time and status in one number, as spark_jobs.timeline.packed.
_PACKED = f"measured_at_s * 8 + CASE status {_RANK} END"
# Sums that change when a result is added, moved or changed; the database has no hash for sets.
_SECOND = f"(measured_at_s % {DAY_S} + 1)"
_CHECK_1 = f"{_SECOND} * (1 + CASE status {_RANK} END)"

_RESULTS = f"""
SELECT host_name, service_flavour, metric_name, {_PACKED} AS packed
FROM report_result
"""
_NEWEST = "SELECT result_id FROM report_newest_result"
_TALLY = f"""
SELECT measured_at_s / {DAY_S} AS day,
    min(host_name), min(service_flavour), min(metric_name), min(vo), min(fqan),
    count(*) AS results,
    max({_PACKED}) AS last,
    CAST(sum({_CHECK_1}) AS bigint) AS check_1,
    CAST(sum({_SECOND} * {_CHECK_1}) AS bigint) AS check_2
FROM report_result
"""


@dataclass(frozen=True)
class Window:
    """Results measured in seconds [start, end), no newer in the database than last_id."""

    start: int
    end: int
    last_id: int

    def slices(self, count: int) -> list[dict[str, int]]:
        """The window in so many parts, to be read side by side."""
        edges = [self.start + (self.end - self.start) * at // count for at in range(count)]
        return self._between([*edges, self.end])

    def days(self) -> list[dict[str, int]]:
        """The window day by day."""
        return self._between([*range(self.start, self.end, DAY_S), self.end])

    def _between(self, edges: Sequence[int]) -> list[dict[str, int]]:
        return [
            {"start": low, "end": high, "last_id": self.last_id}
            for low, high in pairwise(edges)
            if low < high
        ]


class Storage:
    """The database as Spark sees it."""

    def __init__(self, spark: SparkSession, engine: Engine) -> None:
        self._spark = spark
        self._engine = engine
        self._parallelism = spark.sparkContext.defaultParallelism
        spark.dataSource.register(SamSource)

    @property
    def partitions(self) -> int:
        """How many partitions a shuffle makes."""
        return int(self._spark.conf.get(PARTITIONS) or 1)

    def newest_result(self) -> int:
        """The last result there is: later ones, that come while we read, wait for the next run."""
        with reading(self._engine) as connection:
            return connection.scalar(text(_NEWEST)) or 0

    def results(self, window: Window, vo: str | None, fqan: str | None) -> DataFrame:
        """Results of the window; of one VO and FQAN if given."""
        columns = "host_name string, service_flavour string, metric_name string, packed bigint"
        only = {name: value for name, value in (("vo", vo), ("fqan", fqan)) if value is not None}
        conditions = "".join(f" AND {name} = :{name}" for name in only)
        bound = [{**each, **only} for each in window.slices(_SLICES_PER_CORE * self._parallelism)]
        return self._read(f"{_RESULTS} WHERE {self._within()}{conditions}", columns, bound)

    def tally(self, window: Window) -> DataFrame:
        """The same of all VOs, summed up by the database: one row per UTC day and instance."""
        columns = (
            "day int, host_name string, service_flavour string, metric_name string, vo string,"
            " fqan string, results bigint, last bigint, check_1 bigint, check_2 bigint"
        )
        grouped = f"GROUP BY instance_id, measured_at_s / {DAY_S}"
        statement = f"{_TALLY} WHERE {self._within()} {grouped}"
        return self._read(statement, columns, window.days())

    def table(self, columns: str, rows: Sequence[Sequence[object]]) -> DataFrame:
        """A small table made here, with columns as in "day int, site string"."""
        arrow = to_arrow_schema(_schema(columns))
        by_column = list(zip(*rows, strict=True)) or [()] * len(arrow)
        arrays = [pa.array(c, each.type) for c, each in zip(by_column, arrow, strict=True)]
        return self._spark.createDataFrame(pa.Table.from_arrays(arrays, schema=arrow))

    def rows(self, frame: DataFrame) -> list[dict[str, Any]]:
        """A small table, a row per day, for the run record."""
        found: list[dict[str, Any]] = frame.toArrow().to_pylist()
        return found

    def write(self, frame: DataFrame, table: str) -> None:
        """Append the rows; `{level}` in the table's name is the row's level.

        They carry their run_id, so nobody sees them before that run is published.
        """
        if self._engine.dialect.name == "sqlite":
            self._write_here(frame.toArrow(), table)
        else:
            options = {CONNECTION: json.dumps(_connection(self._engine)), "table": table}
            frame.write.format(FORMAT).options(**options).mode("append").save()

    def _within(self) -> str:
        return f"{WINDOW[self._engine.dialect.name]} AND result_id <= :last_id"

    def _read(self, statement: str, columns: str, slices: Sequence[Mapping[str, Any]]) -> DataFrame:
        compiled = text(statement).compile(dialect=self._engine.dialect)
        order = compiled.positiontup
        bound = [[each[name] for name in order] if order else dict(each) for each in slices]
        options = {
            CONNECTION: json.dumps(_connection(self._engine)),
            "statement": str(compiled),
            "slices": json.dumps(bound),
        }
        return self._spark.read.format(FORMAT).schema(columns).options(**options).load()

    def _write_here(self, rows: pa.Table, table: str) -> None:
        with writing(self._engine) as connection:
            for name, batch in by_table(rows, table):
                columns = TABLES[name]
                places = ", ".join(f":{column}" for column in columns)
                statement = text(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({places})")
                for part in batch.to_batches(max_chunksize=BATCH_ROWS):
                    connection.execute(statement, _plain(part))


def _plain(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows for SQLite, whose driver knows no decimals."""
    return [
        {name: float(v) if isinstance(v, Decimal) else v for name, v in row.items()}
        for row in batch.to_pylist()
    ]


def _schema(columns: str) -> StructType:
    parsed = _parse_datatype_string(columns)
    assert isinstance(parsed, StructType)
    return parsed


def _connection(engine: Engine) -> dict[str, Any]:
    """What a task needs to connect: a path, or the arguments of psycopg2."""
    if engine.dialect.name == "sqlite":
        return {"sqlite": engine.get_execution_options()["sam_file"]}
    arguments = engine.dialect.create_connect_args(engine.url)[1]
    return {**arguments, **postgresql_arguments(engine.url)}
