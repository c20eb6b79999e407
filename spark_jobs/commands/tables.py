"""Tables of figures or trends, one per report, printed as text, CSV or JSON."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sam_pipeline.schema.program.command import OK, to_json
from sam_pipeline.spark_jobs.commands.arguments import table_format, time_or_none
from sam_pipeline.spark_jobs.exports.spreadsheet import csv_table
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.levels import NAMES, SECONDS
from sam_pipeline.spark_jobs.rules.seconds import Seconds
from sam_pipeline.spark_jobs.runs.published import Names, Run, until_of


@dataclass(frozen=True)
class ReportTable:
    """What a report says about the things of a level over a period."""

    report: str
    level: str
    period: Period
    runs: Sequence[Run]

    @property
    def heading(self) -> str:
        until = until_of(self.runs)
        return f"{self.report}, {self.period}{f' (until {time_or_none(until)})' if until else ''}"

    def named(self, names: Names) -> dict[str, Any]:
        """The columns that say which thing a row is about."""
        return {
            "report": self.report,
            "first_day": self.period.first,
            "last_day": self.period.last,
            "level": self.level,
            **dict(zip(NAMES[self.level], names, strict=True)),
        }


_Table = TypeVar("_Table", bound=ReportTable)


def print_tables(
    args: argparse.Namespace,
    tables: Sequence[_Table],
    rows: Callable[[_Table], Iterable[dict[str, Any]]],
    lines: Callable[[_Table], Iterable[str]],
) -> int:
    """Print the flat rows of all tables for CSV and JSON, else the lines of each table."""
    style = table_format(args)
    if style == "table":
        if tables:
            print("\n\n".join("\n".join(lines(table)) for table in tables))
        return OK
    flat = [row for table in tables for row in rows(table)]
    if style == "json":
        print(to_json(flat))
    elif tables:
        print(csv_table(flat))
    return OK


def seconds_columns(seconds: Seconds) -> dict[str, int]:
    return {name: getattr(seconds, name.removesuffix("_s")) for name in SECONDS}
