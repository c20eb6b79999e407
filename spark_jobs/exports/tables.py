"""The report views as typed columns, in batches, so that memory use stays small."""

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
_SECONDS = dict.fromkeys(SECONDS, _COUNT)


@dataclass(frozen=True)
class ExportTable:
    """A report view without report, day and run, which all rows of a file have in common."""

    name: str
    key: Sequence[str]
    values: Mapping[str, pa.DataType]

    @property
    def schema(self) -> pa.Schema:
        """The columns, and `until`, the end of the data if the day was open."""
        key = [(name, _TIME if name == "start_time" else _TEXT) for name in self.key]
        return pa.schema([*key, *self.values.items(), ("until", _TIME)])


_SEGMENT = ("level", *ALL_NAMES)
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
    ExportTable("status_timeline", (*_SEGMENT, "start_time"), {"end_time": _TIME, "status": _TEXT}),
    ExportTable(
        "status_trend",
        _SEGMENT,
        {"changes": _COUNT, "first_change": _TIME, "last_change": _TIME, **_SECONDS},
    ),
)


def batches(
    connection: Connection, table: ExportTable, report: str, run: Run
) -> Iterator[pa.RecordBatch]:
    """The rows of a published day, ordered by the key."""
    columns = [*table.key, *table.values]
    result = connection.execute(
        text(
            f"SELECT {', '.join(columns)} FROM {table.name}"
            f" WHERE report = :report AND day = :day ORDER BY {', '.join(table.key)}"
        ),
        {"report": report, "day": run.day.isoformat()},
        execution_options={"yield_per": BATCH_ROWS},
    )
    until = None if run.until is None else moment(run.until)
    schema = table.schema
    for rows in result.partitions(BATCH_ROWS):
        values = [*zip(*rows, strict=True), [until] * len(rows)]
        # The two database drivers return different types: text or times, floats or decimals.
        arrays = [pa.array(c).cast(kind) for c, kind in zip(values, schema.types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
