"""The report views as typed columns, a day at a time and in batches: a month never fills memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.rules.days import moment
from sam_pipeline.spark_jobs.rules.levels import ALL_NAMES, GROUP, NAMES, SECONDS, WITH_FIGURES
from sam_pipeline.spark_jobs.runs.published import Run

BATCH_ROWS = 50_000

_TEXT = pa.string()
_COUNT = pa.int32()
_PERCENT = pa.decimal128(8, 5)
_TIME = pa.timestamp("us", "UTC")
_FIGURES = {"availability": _PERCENT, "reliability": _PERCENT}
_UNTIL = ("until", _TIME)
_SECONDS = dict.fromkeys(SECONDS, _COUNT)


@dataclass(frozen=True)
class Table:
    """A report view without report, day and run, which are the same for all rows of a file."""

    name: str
    key: Sequence[str]
    values: Mapping[str, pa.DataType]

    @property
    def schema(self) -> pa.Schema:
        """Its columns, and `until` where the day was still open."""
        return pa.schema(
            [*((name, _kind(name)) for name in self.key), *self.values.items(), _UNTIL]
        )


_SEGMENT = ("level", *ALL_NAMES)
TABLES = (
    *(
        Table(f"{level}_availability", NAMES[level], {**_FIGURES, **_SECONDS})
        for level in WITH_FIGURES
    ),
    Table(
        "group_availability",
        NAMES[GROUP],
        {**_FIGURES, "sites_expected": _COUNT, "sites_known": _COUNT},
    ),
    Table("status_timeline", (*_SEGMENT, "start_time"), {"end_time": _TIME, "status": _TEXT}),
    Table(
        "status_trend",
        _SEGMENT,
        {"changes": _COUNT, "first_change": _TIME, "last_change": _TIME, **_SECONDS},
    ),
)


def batches(
    connection: Connection, table: Table, report: str, run: Run
) -> Iterator[pa.RecordBatch]:
    """The rows of a published day, ordered by their key."""
    columns = [*table.key, *table.values]
    found = connection.execute(
        text(
            f"SELECT {', '.join(columns)} FROM {table.name}"
            f" WHERE report = :report AND day = :day ORDER BY {', '.join(table.key)}"
        ),
        {"report": report, "day": run.day.isoformat()},
        execution_options={"yield_per": BATCH_ROWS},
    )
    until = None if run.until is None else moment(run.until)
    for rows in found.partitions(BATCH_ROWS):
        by_column = [*zip(*rows, strict=True), [until] * len(rows)]
        yield pa.RecordBatch.from_arrays(
            # What a driver gives for a type differs: text or times, floats or decimals.
            [pa.array(c).cast(kind) for c, kind in zip(by_column, table.schema.types, strict=True)],
            schema=table.schema,
        )


def _kind(name: str) -> pa.DataType:
    return _TIME if name == "start_time" else _TEXT
