"""Published figures and timelines as plain rows, to compare with an independent computation."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Engine, text

from sam_pipeline.schema.times import parse_time
from sam_pipeline.spark_jobs.rules.days import as_day
from sam_pipeline.sql.database.engine import reading
from tests.oracle.duckdb_rules import KEYS, NAMES, SECONDS

Rows = set[tuple[Any, ...]]


def published_figures(engine: Engine, report: str) -> Rows:
    """The figures of all published days, as rows of tests.duckdb_report.FIGURE."""
    figures: Rows = set()
    for level, keys in KEYS.items():
        if level != "metric":
            names = ", ".join(name if name in keys else "''" for name in NAMES)
            columns = f"day, {names}, {', '.join(SECONDS)}, availability, reliability"
            rows = _rows(engine, f"SELECT {columns} FROM {level}_availability", report)
            figures |= {
                (level, as_day(day), *values, *map(_share, shares))
                for day, *values, availability, reliability in rows
                for shares in [(availability, reliability)]
            }
    return figures


def published_timeline(engine: Engine, report: str) -> Rows:
    """The segments of all published days, as rows of tests.duckdb_report.SEGMENT."""
    columns = f"level, day, {', '.join(NAMES)}, start_time, end_time, status"
    return {
        (level, as_day(day), *names, _second(start), _second(end), status)
        for level, day, *names, start, end, status in _rows(
            engine, f"SELECT {columns} FROM status_timeline", report
        )
    }


def _rows(engine: Engine, statement: str, report: str) -> Any:
    with reading(engine) as connection:
        return connection.execute(text(f"{statement} WHERE report = :report"), {"report": report})


def _share(percent: Decimal | float | None) -> int | None:
    """The percentage in whole 100 000ths of a percent."""
    return None if percent is None else round(percent * 100_000)


def _second(moment: datetime | str) -> int:
    return int((parse_time(moment) if isinstance(moment, str) else moment).timestamp())
