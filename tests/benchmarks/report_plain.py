"""The base for reports: Spark that only reads five columns of all results.

It reads once by JDBC and once by a plain Python data source, both in parallel slices of the day,
and discards the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg2
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from sqlalchemy import make_url

from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, day_start
from tests.benchmarks.consume_java import fetch_jars

POM = Path(__file__).with_name("java") / "postgresql-pom.xml"
JARS = Path(__file__).parents[2] / ".cache" / "postgresql-jdbc"
COLUMNS = ("host_name", "service_flavour", "metric_name", "status", "measured_at")
FETCH = 20_000
SLICES = 4


def jdbc_jar() -> Path:
    """PostgreSQL's driver, downloaded by Maven the first time."""
    (jar,) = fetch_jars(POM, JARS).glob("postgresql-*.jar")
    return jar


def by_jdbc(spark: SparkSession, url: str, period: Period) -> DataFrame:
    parsed = make_url(url)
    return spark.read.jdbc(
        f"jdbc:postgresql://{parsed.host}:{parsed.port}/{parsed.database}",
        f"(SELECT {', '.join(COLUMNS)} FROM report_result) AS result",
        predicates=[
            f"measured_at >= to_timestamp({low}) AND measured_at < to_timestamp({high})"
            for low, high in _slices(period)
        ],
        properties={
            "user": str(parsed.username),
            "password": str(parsed.password),
            "driver": "org.postgresql.Driver",
            "fetchsize": str(FETCH),
        },
    )


def by_python(spark: SparkSession, url: str, period: Period) -> DataFrame:
    spark.dataSource.register(PlainSource)
    parsed = make_url(url)
    login = {
        "host": parsed.host,
        "port": parsed.port,
        "dbname": parsed.database,
        "user": parsed.username,
        "password": parsed.password,
    }
    options = {"login": json.dumps(login), "slices": json.dumps(_slices(period))}
    return spark.read.format(PlainSource.name()).options(**options).load()


def into_nothing(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


class PlainSource(DataSource):
    """A data source of the columns, which reads a slice of time in each task."""

    @classmethod
    def name(cls) -> str:
        return "plain"

    def schema(self) -> str:
        texts = ", ".join(f"{name} string" for name in COLUMNS[:-1])
        return f"{texts}, {COLUMNS[-1]} bigint"

    def reader(self, schema: Any) -> DataSourceReader:
        return _PlainReader(json.loads(self.options["login"]), json.loads(self.options["slices"]))


class _PlainReader(DataSourceReader):
    def __init__(self, login: dict[str, Any], slices: Sequence[Sequence[int]]) -> None:
        self._login = login
        self._slices = slices

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(time_slice) for time_slice in self._slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        types = [pa.string()] * (len(COLUMNS) - 1) + [pa.int64()]
        with (
            closing(psycopg2.connect(**self._login)) as connection,
            connection.cursor(name="plain") as cursor,
        ):
            cursor.execute(
                f"SELECT {', '.join(COLUMNS)}_s FROM report_result"
                " WHERE measured_at >= to_timestamp(%s) AND measured_at < to_timestamp(%s)",
                partition.value,
            )
            while rows := cursor.fetchmany(FETCH):
                columns = zip(*rows, strict=True)
                arrays = [pa.array(c, type) for c, type in zip(columns, types, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, list(COLUMNS))


def _slices(period: Period) -> list[tuple[int, int]]:
    start, end = day_start(period.first), day_start(period.last) + DAY_S
    edges = [start + (end - start) * at // SLICES for at in range(SLICES + 1)]
    return list(pairwise(edges))
