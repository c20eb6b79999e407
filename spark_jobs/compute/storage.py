"""The database of a run, seen from the driver: the only module that knows how tasks connect.

No JDBC driver is needed: each task opens the database in Python. On SQLite only the driver writes,
as a file has one writer at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Engine, text
from sqlalchemy.dialects import sqlite

from sam_pipeline.spark_jobs.compute.tasks import SEGMENTS, Folded
from sam_pipeline.spark_jobs.errors import SparkFailed
from sam_pipeline.sql.database.engine import postgresql_arguments, reading, writing

_BATCH_ROWS = 20_000
# The rows of about as many instances, each on one day, take about 150 MB of the driver's memory.
_INSTANCE_DAYS_AT_ONCE = 1_000_000


class Storage:
    """Reads and writes the database; `connection` is how a task connects to it."""

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
                    columns = rows.column_names
                    values = ", ".join(f":{column}" for column in columns)
                    insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"
                    for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):
                        connection.execute(text(insert), batch.to_pylist())
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
