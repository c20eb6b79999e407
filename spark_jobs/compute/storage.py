"""Where Spark reads and writes: only here (and in what tasks run, storage_tasks) are
statements, URLs and drivers known.

No jar is needed: Python opens the database in each task and gives or takes Arrow batches. On
PostgreSQL the tasks write, too; on SQLite the driver is the single writer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, _parse_datatype_string
from sqlalchemy import Engine, text
from sqlalchemy.dialects import sqlite

from sam_pipeline.spark_jobs.compute import slices as results_reading
from sam_pipeline.spark_jobs.compute.session import PARTITIONS
from sam_pipeline.spark_jobs.compute.workers import (
    BATCH_ROWS,
    TABLES,
    WRITTEN,
    by_table,
    copying,
    reading_results,
    reading_rows,
)
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, VALUES, WINDOW, Exclusion
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, day_start
from sam_pipeline.spark_jobs.rules.statuses import STATUSES
from sam_pipeline.sql.database.engine import postgresql_arguments, reading, writing

_RANK = " ".join(f"WHEN '{name}' THEN {code}" for code, name in enumerate(STATUSES))
# Time and status in one number, as spark_jobs.compute.stretches has them.
_PACKED = f"measured_at_s * 8 + CASE status {_RANK} END"
_NEWEST = "SELECT result_id FROM report_newest_result"
_INSTANCES = """
SELECT instance_id, host_name, service_flavour, metric_name, vo, fqan FROM report_instance
"""
# Several FQANs of one VO are one instance in a report.
_ALONE = """
SELECT instance_id FROM report_instance WHERE (endpoint_id, metric_id, vo_id) IN (
    SELECT endpoint_id, metric_id, vo_id FROM report_instance
    GROUP BY endpoint_id, metric_id, vo_id HAVING count(*) > 1
)
"""
_JUDGED = (
    "instance_id, measured_at_s, host_name, service_flavour, metric_name, status, performance_data"
)
# Later ones, that come while we read, wait for the next run.
_READ = "result_id <= :newest"
# The time as the database has it, in an index.
_TIME = {"sqlite": "measured_at_s", "postgresql": "measured_at"}


@dataclass(frozen=True)
class Reading:
    """Which results to read: of the period and the last ones before, no newer than `newest`.

    `judge` is the profile whose thresholds change statuses, if it has any. `apart_s`: the shortest
    time after which a result is not believed any more.
    """

    period: Period
    now: int
    newest: int
    exclusions: tuple[Exclusion, ...]
    judge: Profile | None
    apart_s: int | None

    @property
    def end(self) -> int:
        return min(day_start(self.period.last) + DAY_S, self.now)

    @property
    def parameters(self) -> dict[str, int | str]:
        """Of the statements, but for the slice's."""
        metrics = sorted({rule.metric_name for rule in self.judge.thresholds} if self.judge else ())
        hosts = {f"host_{at}": each.monitoring_host for at, each in enumerate(self._hosts)}
        return {"newest": self.newest, "names": json.dumps(metrics), **hosts}

    @property
    def exists(self) -> str:
        """The condition that a result is there for the report (availability rule 7)."""
        return f"{_READ} AND NOT ({self.gone})" if self.gone else _READ

    @property
    def gone(self) -> str:
        """The condition that an excluded monitoring host has measured a result."""
        return " OR ".join(
            f"monitoring_host = :host_{at} AND measured_at_s BETWEEN {each.start} AND {each.end}"
            for at, each in enumerate(self._hosts)
        )

    @property
    def _hosts(self) -> list[Exclusion]:
        return [each for each in self.exclusions if each.kind == MONITORING_HOST]

    def slices(self, parallelism: int) -> list[dict[str, int]]:
        """Stretches of time of at most a day, at least one for each core."""
        first = day_start(self.period.first)
        # Thresholds judge each result, so the newest of a day is not known before.
        edges = range(first - DAY_S if self.judge else first, self.end, DAY_S)
        days = list(pairwise([*edges, self.end]))
        each = -(-parallelism // max(len(days), 1))
        return [
            {"start": low, "end": high}
            for start, end in days
            for low, high in pairwise(start + (end - start) * at // each for at in range(each + 1))
            if low < high
        ]

    def parts(self, parallelism: int) -> list[dict[str, int]]:
        """The day before, by parts of the instances: of it only the last results are wanted."""
        if self.judge:
            return []
        end = day_start(self.period.first)
        window = {"start": end - DAY_S, "end": end}
        return [{**window, "part": at, "parts": parallelism} for at in range(parallelism)]


class Storage:
    """The database as Spark sees it."""

    def __init__(self, spark: SparkSession, engine: Engine) -> None:
        self._spark = spark
        self._engine = engine
        self._parallelism = spark.sparkContext.defaultParallelism

    def partitions(self, days: int) -> int:
        """How many partitions a shuffle of so many days makes: one a day, or one a core."""
        return max(int(self._spark.conf.get(PARTITIONS) or 1), days)

    def newest_result(self) -> int:
        """The last result there is: later ones, that come while we read, wait for the next run."""
        with reading(self._engine) as connection:
            return connection.scalar(text(_NEWEST)) or 0

    def stretches(self, wanted: Reading) -> DataFrame:
        """Stretches, and the last results of the day before (spark_jobs.compute.slices.COLUMNS)."""
        cut = [*wanted.slices(self._parallelism), *wanted.parts(self._parallelism)]
        slices = [{**each, **wanted.parameters} for each in cut]
        work = reading_results(_connection(self._engine), self._task(wanted), slices)
        each = self._spark.range(0, len(slices), 1, len(slices))
        return each.mapInArrow(work, results_reading.COLUMNS)

    def excluded(self, wanted: Reading) -> dict[int, int]:
        """How many results of each day (since the epoch) excluded monitoring hosts have made."""
        if not wanted.gone:
            return {}
        statement = (
            f"SELECT measured_at_s / {DAY_S}, count(*) FROM report_result"
            f" WHERE {WINDOW[self._engine.dialect.name]} AND {_READ} AND ({wanted.gone})"
            f" GROUP BY measured_at_s / {DAY_S}"
        )
        window = {"start": day_start(wanted.period.first), "end": wanted.end}
        with reading(self._engine) as connection:
            found = connection.execute(text(statement), {**wanted.parameters, **window})
            return {int(number): int(count) for number, count in found}

    def instances(self) -> DataFrame:
        """The names of all metric instances."""
        columns = (
            "instance_id int, host_name string, service_flavour string, metric_name string,"
            " vo string, fqan string"
        )
        schema = to_arrow_schema(_schema(columns))
        work = reading_rows(_connection(self._engine), _INSTANCES, schema)
        return self._spark.range(0, 1, 1, 1).mapInArrow(work, columns)

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

    def write(self, frame: DataFrame, table: str) -> int:
        """Append the rows; `{level}` in the table's name is the row's level. How many they are.

        They carry their run_id, so nobody sees them before that run is published.
        """
        if self._engine.dialect.name == "sqlite":
            rows = frame.toArrow()
            self._write_here(rows, table)
            return int(rows.num_rows)
        counts = frame.mapInArrow(copying(_connection(self._engine), table), WRITTEN).toArrow()
        return sum(counts.column("rows").to_pylist())

    def segments_of(self, run_ids: Iterable[int]) -> int:
        """How many segments these runs have stored."""
        numbers = ", ".join(str(int(run_id)) for run_id in run_ids)
        statement = f"SELECT count(*) FROM timeline_segment WHERE run_id IN ({numbers})"
        with reading(self._engine) as connection:
            return int(connection.scalar(text(statement)) or 0)

    def _task(self, wanted: Reading) -> results_reading.Task:
        dialect, judge = self._engine.dialect.name, wanted.judge
        there = f"FROM report_result AS r WHERE {WINDOW[dialect]} AND {wanted.exists}"
        judged = f"performance_data IS NOT NULL AND metric_name IN (SELECT {VALUES[dialect]})"
        plain = f"{there} AND NOT ({judged})" if judge else there
        last = (
            f"SELECT {_PACKED} {there} AND r.instance_id = i.instance_id"
            f" ORDER BY {_TIME[dialect]} DESC, status_code DESC LIMIT 1"
        )
        with reading(self._engine) as connection:
            alone = list(connection.scalars(text(_ALONE)))
        return results_reading.Task(
            plain=self._compiled(f"SELECT instance_id, {_TIME[dialect]}, status_code {plain}"),
            count=self._compiled(f"SELECT count(*) {plain}"),
            last=self._compiled(
                f"SELECT i.instance_id, ({last}) FROM report_instance AS i"
                " WHERE i.instance_id % :parts = :part"
            ),
            judged=self._compiled(f"SELECT {_JUDGED} {there} AND {judged}") if judge else None,
            rules=judge.thresholds if judge else (),
            alone=alone,
            apart_s=wanted.apart_s,
        )

    def _compiled(self, statement: str) -> str:
        """With parameters as the driver takes them, by name."""
        if self._engine.dialect.name == "sqlite":
            return str(text(statement).compile(dialect=sqlite.dialect(paramstyle="named")))
        return str(text(statement).compile(dialect=self._engine.dialect))

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
