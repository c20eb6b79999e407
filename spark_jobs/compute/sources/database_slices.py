"""Reads slices of results from the database as stretches, in Spark's tasks; without SQLAlchemy.

PostgreSQL sends results as binary COPY, whose rows of three numbers NumPy reads without parsing.
"""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import numpy as np

from sam_pipeline.spark_jobs.compute.stretches import Results, Stretches, pack, stretches
from sam_pipeline.spark_jobs.profiles.profile import Threshold
from sam_pipeline.spark_jobs.profiles.thresholds import verdict_of
from sam_pipeline.spark_jobs.rules.days import DAY_S
from sam_pipeline.spark_jobs.rules.shares import Integers
from sam_pipeline.spark_jobs.rules.statuses import STATUSES
from sam_pipeline.sql.archive.digests import STATUS_CODES

MAX_RESULTS = 3_000_000
"""A slice with about as many results is read in parts, to keep a task's memory below 0.5 GB."""

_FETCH_ROWS = 50_000
# PostgreSQL's binary COPY: a header; rows of (columns, then length and value of each); a trailer.
_HEADER_BYTES, _TRAILER_BYTES = 19, 2
_ROW = np.dtype(
    [
        ("columns", ">i2"),
        ("id_length", ">i4"),
        ("instance_id", ">i4"),
        ("time_length", ">i4"),
        ("microsecond", ">i8"),
        ("status_length", ">i4"),
        ("status_code", ">i2"),
    ]
)
_YEAR_2000_S = 946_684_800

Connection = Mapping[str, Any]
"""A path under the key `sqlite`, or the arguments of psycopg2.connect."""


class TaskError(Exception):
    """An error in a task, on one line: a worker can report only text."""


@contextmanager
def opened(connection: Connection) -> Iterator[Any]:
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


@dataclass(frozen=True)
class SliceReader:
    """What all slices share: statements, in the parameter style of the driver, and settings.

    `plain` selects instance_id, time (measured_at on PostgreSQL, epoch seconds on SQLite) and
    status_code. `judged` selects the results that thresholds may change: instance_id, epoch second,
    host, flavour, metric, status and performance data.
    `last` selects, for each instance, its id and the packed newest result of a window, or null.
    `ids` are the ids of instances in order, and `numbers` their numbers. `alone` are ids.
    """

    connection: Connection
    plain: str
    last: str
    judged: str | None
    thresholds: Sequence[Threshold]
    ids: Integers
    numbers: Integers
    alone: Integers
    apart_s: int | None


@dataclass(frozen=True)
class DatabaseSlice:
    """The results in a range of time, or the newest of a part of the instances."""

    reader: SliceReader
    parameters: Mapping[str, Any]

    @property
    def day(self) -> int:
        return (int(self.parameters["end"]) - 1) // DAY_S

    def read(self) -> Iterator[Stretches]:
        reader = self.reader
        with opened(reader.connection) as database:
            for results, apart_s in self._results(database):
                part = stretches(results, reader.alone, apart_s)
                number = reader.numbers[np.searchsorted(reader.ids, part.instance)]
                yield part._replace(instance=number)

    def _results(self, database: Any) -> Iterator[tuple[Results, int | None]]:
        """The results by instance_id, in parts; with a `part`, only the newest ones."""
        reader, parameters = self.reader, self.parameters
        if "part" in parameters:
            rows = [row for row in _rows(database, reader.last, parameters) if row[1] is not None]
            last = np.array(rows, np.int64).reshape(-1, 2)
            yield Results(last[:, 0], last[:, 1]), None
            return
        start, end = parameters["start"], parameters["end"]
        rows_planned = 0  # on SQLite, whose databases are small
        if not isinstance(database, sqlite3.Connection):
            # To count the rows would take a quarter of the time of reading them.
            explain = f"EXPLAIN (FORMAT JSON) {reader.plain}"
            [(plans,)] = _rows(database, explain, parameters)
            rows_planned = int(plans[0]["Plan"]["Plan Rows"])
        parts = min(rows_planned // MAX_RESULTS + 1, end - start)
        edges = [start + (end - start) * number // parts for number in range(parts + 1)]
        for low, high in pairwise(edges):
            part = {**parameters, "start": low, "end": high}
            results = _fetched(database, reader.plain, part)
            if reader.judged is not None:
                judged = [
                    (
                        number,
                        second * 8 + STATUSES.index(verdict_of(reader.thresholds, *row).status),
                    )
                    for number, second, *row in _rows(database, reader.judged, part)
                ]
                columns = np.array(judged, np.int64).reshape(-1, 2)
                results = Results(
                    np.concatenate([results.instance, columns[:, 0]]),
                    np.concatenate([results.packed, columns[:, 1]]),
                )
            yield results, reader.apart_s


def _fetched(database: Any, statement: str, parameters: Mapping[str, Any]) -> Results:
    """Fetch results from SQLite, or copy them from PostgreSQL."""
    instance_id: Integers
    second: Integers
    if isinstance(database, sqlite3.Connection):
        cursor = database.execute(statement, parameters)
        parts = [np.empty((0, 3), np.int64)]
        while fetched := cursor.fetchmany(_FETCH_ROWS):
            parts.append(np.array(fetched, np.int64))
        instance_id, second, status_code = np.concatenate(parts).T
    else:
        body = io.BytesIO()
        with database.cursor() as cursor:
            query = cursor.mogrify(statement, parameters).decode()
            cursor.copy_expert(f"COPY ({query}) TO STDOUT (FORMAT binary)", body)
        rows = np.frombuffer(body.getbuffer()[_HEADER_BYTES:-_TRAILER_BYTES], _ROW)
        instance_id = rows["instance_id"].astype(np.int64)
        second = rows["microsecond"].astype(np.int64) // 1_000_000 + _YEAR_2000_S
        status_code = rows["status_code"]
    return Results(instance_id, pack(second, STATUS_CODES[status_code]))


def _rows(database: Any, statement: str, parameters: Mapping[str, Any]) -> list[Any]:
    cursor = database.cursor()
    cursor.execute(statement, parameters)
    rows: list[Any] = cursor.fetchall()
    return rows
