"""What a computation carries, and the seam to its sources: the database, and the archive."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Protocol

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import SparkContext
from sqlalchemy import Engine, text
from sqlalchemy.dialects import sqlite

from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.spark_jobs.compute.planning import Instances
from sam_pipeline.spark_jobs.compute.tasks import SEGMENTS, Folded, Slice
from sam_pipeline.spark_jobs.errors import SparkFailed
from sam_pipeline.spark_jobs.inputs.announced import Announced
from sam_pipeline.spark_jobs.profiles.profile import Threshold
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.runs.changes import insert_into
from sam_pipeline.sql.database.engine import postgresql_arguments, reading, writing

_BATCH_ROWS = 20_000
# The rows of about as many instances, each on one day, take about 150 MB of the driver's memory.
_INSTANCE_DAYS_AT_ONCE = 1_000_000


def current_second() -> int:
    return int(time.time())


@dataclass(frozen=True)
class Run:
    """Spark at work on a database; `watching` encloses each of its jobs."""

    context: SparkContext
    engine: Engine
    clock: Callable[[], int] = current_second
    progress: Progress = field(default_factory=Progress)
    watching: Callable[[], AbstractContextManager[None]] = nullcontext


@dataclass(frozen=True)
class DaysToRead:
    """The days of a run that begins at `now` (epoch s): a period, and `look_back` days before it.

    Of the days before the period, only the results count that its first day begins with.
    """

    period: Period
    look_back: int
    now: int


class ResultSource(Protocol):
    """Where a run reads some of its days from.

    The methods are called in this order, `slices` once for each set of thresholds.
    """

    @property
    def days(self) -> Sequence[date]: ...

    def announced(self, others: Mapping[date, Announced]) -> Mapping[date, Announced]:
        """What is announced for its days in the period, and maybe for others.

        Args:
            others: what the sources before it have returned.
        """

    def instances(self, announced: Mapping[date, Announced]) -> pa.Table:
        """All metric instances that may have results, with the columns that `numbered` takes.

        Raises:
            ArchiveError: a file cannot be read, or is not what its manifest says.
        """

    def slices(
        self, instances: Instances, thresholds: Sequence[Threshold], apart_s: int | None, cores: int
    ) -> Sequence[Slice]:
        """The results in slices, at least one per core if there are enough.

        Args:
            apart_s: see compute/stretches.py.
        """

    def excluded(self) -> Mapping[int, int]:
        """The number of results from excluded monitoring hosts, by days since the epoch."""

    def newest_result(self, day: date) -> int:
        """The highest result_id that the results of a day may have."""

    def version(self, day: date) -> int | None:
        """The version of a day that is read, if the source has versions."""


class Storage:
    """The database of a run, seen from the driver: nothing else knows how tasks connect.

    No JDBC driver is needed: each task opens the database in Python. On SQLite only the driver
    writes, as a file has one writer at a time.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.dialect = engine.dialect.name
        self.connection: Mapping[str, Any] = (
            {"sqlite": engine.get_execution_options()["sam_file"]}
            if self.dialect == "sqlite"
            else {
                **engine.dialect.create_connect_args(engine.url)[1],
                **postgresql_arguments(engine.url),
            }
        )

    def days_at_once(self, days: int, instances: int) -> int:
        """How many of the days are computed before the rows that tasks leave are stored."""
        if self.dialect == "sqlite":
            return max(1, min(days, _INSTANCE_DAYS_AT_ONCE // max(instances, 1)))
        return days

    def compiled(self, statement: str) -> str:
        """The statement with its named parameters in the style of the database driver."""
        if self.dialect == "sqlite":
            return str(text(statement).compile(dialect=sqlite.dialect(paramstyle="named")))
        return str(text(statement).compile(dialect=self.engine.dialect))

    def store(self, folded: Sequence[Folded]) -> list[Folded]:
        """Insert the rows that tasks left to the driver; returns what they did, without the rows.

        The rows carry their run_id, so no view shows them before that run is published.
        """
        with writing(self.engine) as connection:
            for task in folded:
                for table, rows in task.left:
                    insert = insert_into(table, rows.column_names)
                    for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):
                        connection.execute(insert, batch.to_pylist())
        return [replace(task, left=()) for task in folded]

    def check(self, folded: Iterable[Folded], run_ids: Iterable[int]) -> None:
        """Compare the number of stored segments with what the tasks did.

        Raises:
            SparkFailed: rows were written twice.
        """
        numbers = ", ".join(str(int(run_id)) for run_id in run_ids)
        count = text(f"SELECT count(*) FROM {SEGMENTS} WHERE run_id IN ({numbers})")
        with reading(self.engine) as connection:
            stored = connection.scalar(count)
        # A cluster repeats the task of a worker that died, even if its rows were committed.
        if stored != sum(task.segments for task in folded):
            raise SparkFailed(
                "a task was repeated after it had stored its rows: run the report again"
            )
