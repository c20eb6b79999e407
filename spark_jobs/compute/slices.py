"""Reads a slice of results as stretches: what a task of Spark does, and the statements for it.

On PostgreSQL results travel as binary COPY, whose rows of three numbers NumPy takes as they are.
"""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from sam_pipeline.spark_jobs.compute.stretches import Integers, Results, Stretches, stretches
from sam_pipeline.spark_jobs.profiles.profile import Threshold
from sam_pipeline.spark_jobs.rules.statuses import CRITICAL, OK, STATUSES, UNKNOWN, WARNING

MOST_RESULTS = 6_000_000
"""A slice with more of them is read in several parts, so that a task's memory stays below 1 GB."""

COLUMNS = (
    "instance_id int, packed bigint, last bigint, results bigint, check_1 bigint, check_2 bigint,"
    " newest boolean"
)

_FETCHED = 50_000
_BATCH_ROWS = 100_000
# What the view's status_code means: its place in the order of harm.
_STATUS_OF_CODE = np.array([OK, WARNING, UNKNOWN, CRITICAL])
# PostgreSQL's binary COPY: a header, rows of (columns, then length and value of each), an end.
_HEADER, _END = 19, 2
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
_SCHEMA = pa.schema(
    [
        ("instance_id", pa.int32()),
        *[(name, pa.int64()) for name in Stretches._fields[1:]],
        ("newest", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class Task:
    """How to read any slice: statements with the driver's parameters, and how to condense.

    `plain` gives instance_id, time, status_code; the time is measured_at on PostgreSQL, epoch
    seconds on SQLite. `judged` gives what the rules judge:
    instance_id, epoch second, status, host, flavour, metric and performance data. `count` counts
    the results of `plain`. `last` gives instance_id and packed of each instance's newest result in
    a window (null: none).
    """

    plain: str
    count: str
    last: str
    judged: str | None
    rules: Sequence[Threshold]
    alone: Sequence[int]
    apart_s: int | None


def read_slice(database: Any, task: Task, bound: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """The stretches of a slice: of [start, end), or the last results there if `part` is given."""
    alone = np.array(sorted(task.alone), np.int64)
    if "part" in bound:
        found = [row for row in _rows(database, task.last, bound) if row[1] is not None]
        last = np.array(found, np.int64).reshape(-1, 2)
        yield from _batches(stretches(Results(last[:, 0], last[:, 1]), alone, None))
        return
    for part in _parts(database, task.count, bound):
        yield from _batches(stretches(_results(database, task, part), alone, task.apart_s))


def _parts(database: Any, count: str, bound: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The slice in parts of time that fit the memory."""
    [(found,)] = _rows(database, count, bound)
    start, end = bound["start"], bound["end"]
    parts = min(found // MOST_RESULTS + 1, end - start)
    edges = [start + (end - start) * at // parts for at in range(parts + 1)]
    return [{**bound, "start": edges[at], "end": edges[at + 1]} for at in range(parts)]


def _results(database: Any, task: Task, bound: Mapping[str, Any]) -> Results:
    on_sqlite = isinstance(database, sqlite3.Connection)
    found = (_fetched if on_sqlite else _copied)(database, task.plain, bound)
    if task.judged is None:
        return found
    judged = _judged(_rows(database, task.judged, bound), task.rules)
    return Results(*[np.concatenate(pair) for pair in zip(found, judged, strict=True)])


def _copied(database: Any, statement: str, bound: Mapping[str, Any]) -> Results:
    body = io.BytesIO()
    with database.cursor() as cursor:
        query = cursor.mogrify(statement, bound).decode()
        cursor.copy_expert(f"COPY ({query}) TO STDOUT (FORMAT binary)", body)
    rows = np.frombuffer(body.getbuffer()[_HEADER:-_END], _ROW)
    second = rows["microsecond"].astype(np.int64) // 1_000_000 + _YEAR_2000_S
    return _packed(rows["instance_id"].astype(np.int64), second, rows["status_code"])


def _fetched(database: sqlite3.Connection, statement: str, bound: Mapping[str, Any]) -> Results:
    cursor = database.execute(statement, bound)
    parts = [np.empty((0, 3), np.int64)]
    while rows := cursor.fetchmany(_FETCHED):
        parts.append(np.array(rows, np.int64))
    instance_id, second, status_code = np.concatenate(parts).T
    return _packed(instance_id, second, status_code)


def _packed(instance_id: Integers, second: Integers, status_code: Any) -> Results:
    return Results(instance_id, (second << 3) | _STATUS_OF_CODE[status_code])


def _judged(rows: Sequence[Sequence[Any]], rules: Sequence[Threshold]) -> Results:
    """Results whose status the profile's thresholds decide (availability rule 6)."""
    from sam_pipeline.spark_jobs.profiles.thresholds import verdict_of

    found = [
        (instance_id, second * 8 + STATUSES.index(verdict_of(rules, *names_status_data).status))
        for instance_id, second, *names_status_data in rows
    ]
    columns = np.array(found, np.int64).reshape(-1, 2)
    return Results(columns[:, 0], columns[:, 1])


def _rows(database: Any, statement: str, bound: Mapping[str, Any]) -> list[Any]:
    cursor = database.cursor()
    cursor.execute(statement, bound)
    rows: list[Any] = cursor.fetchall()
    return rows


def _batches(found: Stretches) -> Iterator[pa.RecordBatch]:
    ids = found.instance_id
    newest = np.append(ids[1:] != ids[:-1], [True] * min(len(ids), 1))
    arrays = [pa.array(ids, pa.int32()), *map(pa.array, found[1:]), pa.array(newest)]
    yield from pa.Table.from_arrays(arrays, schema=_SCHEMA).to_batches(_BATCH_ROWS)
