"""The formats of `sam-report export`: published figures and timelines as files, without Spark.

The same figures give the same bytes: no file records when it was written, or for which run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from sqlalchemy import Connection

from sam_pipeline.schema.program.progress import Stage
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.exports import argo
from sam_pipeline.spark_jobs.exports.files import csv_lines, output_file, path_part
from sam_pipeline.spark_jobs.exports.tables import ExportTable, batches, tables_of
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, day_start
from sam_pipeline.spark_jobs.rules.levels import GROUP, NAMES, SECONDS, SITE
from sam_pipeline.spark_jobs.runs.published import DayFigure, PublishedRun, day_figures

_SAMPLES = "sam_status_seconds"
HEADER = f"""\
# HELP {_SAMPLES} Seconds of a UTC day that a site spent in a status.
# TYPE {_SAMPLES} gauge
# UNIT {_SAMPLES} seconds
"""
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


@dataclass(frozen=True)
class ExportRequest:
    """The published days of one report, and where to write them.

    `months` are the months that the period covers. With a `site`, only its figures are written.
    """

    connection: Connection
    report: str
    period: Period
    runs: Sequence[PublishedRun]
    months: Sequence[Period]
    out: Path
    site: str | None = None

    def file(self, *parts: str) -> Path:
        """A path below the report's directory."""
        return self.out.joinpath(path_part(self.report), *parts)


@dataclass(frozen=True)
class Written:
    """A file, and the number of rows, objects or samples in it."""

    path: Path
    report: str
    first_day: date
    last_day: date
    rows: int


def as_parquet(request: ExportRequest, stage: Stage) -> Iterator[Written]:
    """A directory per view, partitioned by report and day as in Hive."""
    for run, table in _tables(request, stage):
        partition = (f"report={path_part(request.report)}", f"day={run.day}")
        path = request.out.joinpath(table.name, *partition, "part-0.parquet")
        rows = 0
        schema = table.schema
        if run.profile.weights and set(NAMES[GROUP]) <= set(table.key):
            schema = schema.with_metadata({"weights": run.profile.weights})
        with (
            output_file(path) as file,
            pq.ParquetWriter(file, schema, compression="zstd") as writer,
        ):
            for batch in batches(request.connection, table, request.report, run, request.site):
                writer.write_batch(batch)
                rows += batch.num_rows
        yield Written(path, request.report, run.day, run.day, rows)


def as_csv(request: ExportRequest, stage: Stage) -> Iterator[Written]:
    """A file per day and view, with a header."""
    for run, table in _tables(request, stage):
        path = request.file(f"{run.day}", f"{table.name}.csv")
        count = 0
        with output_file(path) as file:
            file.write(csv_lines([_columns(table)]).encode())
            for rows in _rows(request, table, run):
                file.write(csv_lines(rows).encode())
                count += len(rows)
        yield Written(path, request.report, run.day, run.day, count)


def as_json(request: ExportRequest, stage: Stage) -> Iterator[Written]:
    """A file per day and view: an array with an object per line."""
    for run, table in _tables(request, stage):
        path = request.file(f"{run.day}", f"{table.name}.json")
        columns = _columns(table)
        objects = (
            dict(zip(columns, row, strict=True))
            for rows in _rows(request, table, run)
            for row in rows
        )
        with output_file(path) as file:
            count = _write_array(file, objects)
            file.write(b"\n")
        yield Written(path, request.report, run.day, run.day, count)


def as_argo(request: ExportRequest, stage: Stage) -> Iterator[Written]:
    """The answers of ARGO's web API, a file per document and day; A/R also by month."""
    results = argo.RESULTS if request.site is None else argo.RESULTS_OF_SITES
    documents = (*results, *argo.STATUSES)
    parts = [(Period(run.day, run.day), f"{run.day}", run.until, documents) for run in request.runs]
    for month in request.months:
        if any(month.first <= run.day <= month.last for run in request.runs):
            parts.append((month, f"{month.first:%Y-%m}", None, results))
    for period, name, until, documents in parts:
        query = argo.ArgoQuery(
            request.connection, request.report, period, name, until, request.site
        )
        for document in documents:
            stage(f"{request.report} {period}: {document.name}")
            path = request.file(name, f"{document.name}.json")
            with output_file(path) as file:
                file.write(f'{{"{document.root}": '.encode())
                count = _write_array(file, document.items(query))
                file.write(b"}\n")
            yield Written(path, request.report, period.first, period.last, count)


def as_openmetrics(request: ExportRequest, stage: Stage) -> Iterator[Written]:
    """One file for the whole period, as the samples of a series must be adjacent."""
    stage(f"{request.report} {request.period}: openmetrics")
    days = list(day_figures(request.connection, request.report, SITE, request.period, request.site))
    first, last = request.period.first, request.period.last
    path = request.file(f"openmetrics-{first}-to-{last}.txt")
    count = 0
    with output_file(path) as file:
        file.write(HEADER.encode())
        for line in samples(request.report, days):
            file.write(line.encode())
            count += 1
        file.write(b"# EOF\n")
    yield Written(path, request.report, first, last, count)


def samples(report: str, days: Iterable[DayFigure]) -> Iterator[str]:
    """A line for each site, status and day; the lines of a series are adjacent, oldest first.

    A sample is the seconds of one day, with the time of the last second that counts on it. So the
    sum of the samples of a period is the sum in `sam-report show`.
    """
    ordered = sorted(days, key=attrgetter("names", "day"))
    for (site,), group in groupby(ordered, attrgetter("names")):
        figures = list(group)
        for status in (column.removesuffix("_s") for column in SECONDS):
            named = {"report": report, "site": site, "status": status.upper()}
            labels = ",".join(f'{name}="{named[name].translate(_ESCAPES)}"' for name in named)
            for figure in figures:
                start = day_start(figure.day)
                end = start + DAY_S if figure.until is None else figure.until
                seconds = getattr(figure.seconds, status)
                yield f"{_SAMPLES}{{{labels}}} {seconds} {max(start, end - 1)}\n"


WRITERS: Mapping[str, Callable[[ExportRequest, Stage], Iterator[Written]]] = {
    "parquet": as_parquet,
    "csv": as_csv,
    "json": as_json,
    "argo": as_argo,
    "openmetrics": as_openmetrics,
}


def _tables(request: ExportRequest, stage: Stage) -> Iterator[tuple[PublishedRun, ExportTable]]:
    for run in request.runs:
        for table in tables_of(request.site):
            stage(f"{request.report} {run.day}: {table.name}")
            yield run, table


def _columns(table: ExportTable) -> list[str]:
    return ["report", "day", *table.schema.names]


def _rows(
    request: ExportRequest, table: ExportTable, run: PublishedRun
) -> Iterator[list[list[object]]]:
    """The rows of a day in batches, with times as text."""
    for batch in batches(request.connection, table, request.report, run, request.site):
        columns = [
            [None if value is None else format_time(value) for value in column.to_pylist()]
            if pa.types.is_timestamp(column.type)
            else column.to_pylist()
            for column in batch.columns
        ]
        yield [[request.report, f"{run.day}", *row] for row in zip(*columns, strict=True)]


def _write_array(file: BinaryIO, items: Iterator[Mapping[str, object]]) -> int:
    """Write an array of objects, one per line, and return their number."""
    count = 0
    file.write(b"[")
    for item in items:
        line = json.dumps(item, ensure_ascii=False, default=float)  # decimals
        file.write(f"{',' if count else ''}\n{line}".encode())
        count += 1
    file.write(b"\n]" if count else b"]")
    return count
