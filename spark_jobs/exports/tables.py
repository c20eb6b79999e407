"""The report views, and targets, as typed columns, in batches, so that memory use stays small."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.rules.days import Period, moment
from sam_pipeline.spark_jobs.rules.levels import (
    ALL_NAMES,
    GROUP,
    NAMES,
    SECONDS,
    SITE,
    WITH_FIGURES,
)
from sam_pipeline.spark_jobs.rules.seconds import rounded
from sam_pipeline.spark_jobs.runs.published import PublishedRun
from sam_pipeline.spark_jobs.runs.summary import period_figures, period_targets

BATCH_ROWS = 50_000

_TEXT = pa.string()
_COUNT = pa.int32()
_PERCENT = pa.decimal128(8, 5)
_TIME = pa.timestamp("us", "UTC")
_FIGURES = {"availability": _PERCENT, "reliability": _PERCENT}
_SECONDS = dict.fromkeys(SECONDS, _COUNT)


@dataclass(frozen=True)
class ExportTable:
    """A report view or the targets, without what all rows of a file have in common.

    These are report, day and run.
    """

    name: str
    key: Sequence[str]
    values: Mapping[str, pa.DataType]

    @property
    def schema(self) -> pa.Schema:
        """The columns, the end of the data if the day was open, and the revision if sealed."""
        key = [(name, _TIME if name == "start_time" else _TEXT) for name in self.key]
        return pa.schema([*key, *self.values.items(), ("until", _TIME), ("revision", _COUNT)])


_SEGMENT = ("level", *ALL_NAMES)
TARGETS = ExportTable(
    "target",
    ("level", SITE, *NAMES[GROUP]),
    dict.fromkeys(("availability", "reliability", "unknown", "coverage"), _PERCENT),
)
TABLES = (
    *(
        ExportTable(f"{level}_availability", NAMES[level], {**_FIGURES, **_SECONDS})
        for level in WITH_FIGURES
    ),
    ExportTable(
        "group_availability",
        NAMES[GROUP],
        {**_FIGURES, "sites_expected": _COUNT, "sites_known": _COUNT},
    ),
    ExportTable(
        "report_group_site",
        (*NAMES[GROUP], SITE),
        {"weight": _COUNT, **_FIGURES, **_SECONDS},
    ),
    TARGETS,
    ExportTable("status_timeline", (*_SEGMENT, "start_time"), {"end_time": _TIME, "status": _TEXT}),
    ExportTable(
        "status_trend",
        _SEGMENT,
        {"changes": _COUNT, "first_change": _TIME, "last_change": _TIME, **_SECONDS},
    ),
)


def tables_of(site: str | None) -> Sequence[ExportTable]:
    """All tables, or those with rows of a single site."""
    return [table for table in TABLES if site is None or SITE in table.key]


def batches(
    connection: Connection,
    table: ExportTable,
    report: str,
    run: PublishedRun,
    site: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a published day, of all sites or of one, ordered by the key."""
    until = None if run.until is None else moment(run.until)
    schema = table.schema
    read = _targets if table is TARGETS else partial(_view, table=table)
    for rows in read(connection, report, run, site):
        values = [*zip(*rows, strict=True), [until] * len(rows), [run.revision] * len(rows)]
        # The two database drivers return different types: text or times, floats or decimals.
        arrays = [pa.array(c).cast(kind) for c, kind in zip(values, schema.types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _view(
    connection: Connection, report: str, run: PublishedRun, site: str | None, table: ExportTable
) -> Iterator[Sequence[Sequence[Any]]]:
    result = connection.execute(
        text(
            f"SELECT {', '.join([*table.key, *table.values])} FROM {table.name}"
            " WHERE report = :report AND day = :day"
            f"{'' if site is None else ' AND site = :site'} ORDER BY {', '.join(table.key)}"
        ),
        {"report": report, "day": run.day.isoformat(), "site": site},
        execution_options={"yield_per": BATCH_ROWS},
    )
    return result.partitions(BATCH_ROWS)


def _targets(
    connection: Connection, report: str, run: PublishedRun, site: str | None
) -> Iterator[Sequence[Sequence[Any]]]:
    """The targets of each group and site; an endpoint has those of its site."""
    day = Period(run.day, run.day)
    targets = period_targets(connection, report, day)
    rows: list[Sequence[Any]] = []
    for level in (GROUP, SITE) if site is None else (SITE,):
        for figure in period_figures(connection, report, level, day, site):
            aims = targets.of(level, figure.names)
            # A site has no coverage, and a group no unknown time.
            unknown, coverage = (aims.unknown, None) if level == SITE else (None, aims.coverage)
            names = ("", *figure.names) if level == GROUP else (*figure.names, "", "")
            percents = (aims.availability, aims.reliability, unknown, coverage)
            rows.append((level, *names, *map(rounded, percents)))
    if rows:
        yield rows
