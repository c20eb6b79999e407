"""`sam-report export`: published figures and timelines as files for other programs, without Spark.

The same figures give the same bytes: nothing in a file tells when or by which run it was made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from sqlalchemy import Connection

from sam_pipeline.schema.program.progress import Stage
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.exports import argo, openmetrics
from sam_pipeline.spark_jobs.exports.files import output_file, path_part
from sam_pipeline.spark_jobs.exports.spreadsheet import csv_lines
from sam_pipeline.spark_jobs.exports.tables import TABLES, Table, batches
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.levels import SITE
from sam_pipeline.spark_jobs.runs.published import Run, day_figures


@dataclass(frozen=True)
class Request:
    """One report's published days, and where to. `months` are those that the period covers."""

    connection: Connection
    report: str
    period: Period
    runs: Sequence[Run]
    months: Sequence[Period]
    out: Path

    def file(self, *parts: str) -> Path:
        """A place below the report's directory."""
        return self.out.joinpath(path_part(self.report), *parts)


@dataclass(frozen=True)
class Written:
    """A file, and how many rows, things or samples are in it."""

    path: Path
    report: str
    first_day: date
    last_day: date
    rows: int


def as_parquet(request: Request, stage: Stage) -> Iterator[Written]:
    """A directory per view, partitioned by report and day as Hive does."""
    for run, table in _tables(request, stage):
        place = (f"report={path_part(request.report)}", f"day={run.day}")
        path = request.out.joinpath(table.name, *place, "part-0.parquet")
        with (
            output_file(path) as file,
            pq.ParquetWriter(file, table.schema, compression="zstd") as writer,
        ):
            rows = 0
            for batch in batches(request.connection, table, request.report, run):
                writer.write_batch(batch)
                rows += batch.num_rows
        yield Written(path, request.report, run.day, run.day, rows)


def as_csv(request: Request, stage: Stage) -> Iterator[Written]:
    """A file per day and view, with a header."""
    return _as_text(request, stage, "csv", _write_csv)


def as_json(request: Request, stage: Stage) -> Iterator[Written]:
    """A file per day and view: an array, an object a line."""
    return _as_text(request, stage, "json", _write_json)


def as_openmetrics(request: Request, stage: Stage) -> Iterator[Written]:
    """A file for the period, as a sample's neighbours must be those of its series."""
    stage(f"{request.report} {request.period}: openmetrics")
    days = list(day_figures(request.connection, request.report, SITE, request.period))
    name = f"openmetrics-{request.period.first}-to-{request.period.last}.txt"
    path = request.file(name)
    samples = 0
    with output_file(path) as file:
        file.write(openmetrics.HEADER.encode())
        for line in openmetrics.samples(request.report, days):
            file.write(line.encode())
            samples += 1
        file.write(openmetrics.END.encode())
    yield Written(path, request.report, request.period.first, request.period.last, samples)


def as_argo(request: Request, stage: Stage) -> Iterator[Written]:
    """What ARGO's web API answers, a file per question: by day, and A/R by month too."""
    for run in request.runs:
        day = Period(run.day, run.day)
        answers = (*argo.RESULTS, *argo.STATUSES)
        yield from _answers(request, stage, day, f"{run.day}", answers, run.until)
    for month in request.months:
        if any(month.first <= run.day <= month.last for run in request.runs):
            name = f"{month.first:%Y-%m}"
            yield from _answers(request, stage, month, name, argo.RESULTS, None)


WRITERS: Mapping[str, Callable[[Request, Stage], Iterator[Written]]] = {
    "parquet": as_parquet,
    "csv": as_csv,
    "json": as_json,
    "argo": as_argo,
    "openmetrics": as_openmetrics,
}


def _tables(request: Request, stage: Stage) -> Iterator[tuple[Run, Table]]:
    for run in request.runs:
        for table in TABLES:
            stage(f"{request.report} {run.day}: {table.name}")
            yield run, table


def _as_text(
    request: Request,
    stage: Stage,
    ending: str,
    write: Callable[[BinaryIO, Sequence[str], Iterator[list[list[object]]]], int],
) -> Iterator[Written]:
    for run, table in _tables(request, stage):
        path = request.file(f"{run.day}", f"{table.name}.{ending}")
        names = ["report", "day", *table.schema.names]
        with output_file(path) as file:
            rows = write(file, names, _rows(request, table, run))
        yield Written(path, request.report, run.day, run.day, rows)


def _rows(request: Request, table: Table, run: Run) -> Iterator[list[list[object]]]:
    """The rows of a day, a batch at a time."""
    for batch in batches(request.connection, table, request.report, run):
        columns = [_plain(column) for column in batch.columns]
        yield [[request.report, f"{run.day}", *row] for row in zip(*columns, strict=True)]


def _plain(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if pa.types.is_timestamp(column.type):
        return [None if value is None else format_time(value) for value in values]
    return values


def _write_csv(file: BinaryIO, names: Sequence[str], found: Iterator[list[list[object]]]) -> int:
    file.write(csv_lines([names]).encode())
    count = 0
    for rows in found:
        file.write(csv_lines(rows).encode())
        count += len(rows)
    return count


def _write_json(file: BinaryIO, names: Sequence[str], found: Iterator[list[list[object]]]) -> int:
    count = _write_array(
        file, (dict(zip(names, row, strict=True)) for rows in found for row in rows)
    )
    file.write(b"\n")
    return count


def _answers(
    request: Request,
    stage: Stage,
    period: Period,
    date: str,
    answers: Sequence[argo.Answer],
    until: int | None,
) -> Iterator[Written]:
    for answer in answers:
        stage(f"{request.report} {period}: {answer.name}")
        path = request.file(date, f"{answer.name}.json")
        with output_file(path) as file:
            file.write(f'{{"{answer.root}": '.encode())
            items = answer.items(
                argo.Question(request.connection, request.report, period, date, until)
            )
            things = _write_array(file, items)
            file.write(b"}\n")
        yield Written(path, request.report, period.first, period.last, things)


def _write_array(file: BinaryIO, items: Iterator[Mapping[str, object]]) -> int:
    """An array of objects, one a line; how many."""
    count = 0
    file.write(b"[")
    for item in items:
        line = json.dumps(item, ensure_ascii=False, default=float)  # decimals
        file.write(f"{',' if count else ''}\n{line}".encode())
        count += 1
    file.write(b"\n]" if count else b"]")
    return count
