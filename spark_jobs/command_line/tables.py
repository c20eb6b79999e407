"""Tables of figures or trends, one per report, printed as text, CSV or JSON."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sam_pipeline.schema.program.command import OK, print_json, print_lines, print_text
from sam_pipeline.spark_jobs.command_line.arguments import table_format, time_or_none
from sam_pipeline.spark_jobs.exports.spreadsheet import csv_table
from sam_pipeline.spark_jobs.rules.days import Period, in_ranges
from sam_pipeline.spark_jobs.rules.levels import NAMES, SECONDS
from sam_pipeline.spark_jobs.rules.seconds import Seconds
from sam_pipeline.spark_jobs.runs.published import Names, PublishedRun, until_of


@dataclass(frozen=True)
class ReportTable:
    """A table of one report, with a row for each thing of a level over a period."""

    report: str
    level: str
    period: Period
    runs: Sequence[PublishedRun]

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows for CSV and JSON, all with the same columns."""
        raise NotImplementedError

    def lines(self) -> Iterator[str]:
        """The table as text, below the heading."""
        raise NotImplementedError

    @property
    def heading(self) -> str:
        until = until_of(self.runs)
        heading = f"{self.report}, {self.period}"
        if until:
            heading += f" (until {time_or_none(until)})"
        if archived := [run.day for run in self.runs if run.day in run.archived]:
            heading += f" (from the archive: {in_ranges(archived)})"
        return heading

    def named(self, names: Names) -> dict[str, Any]:
        """The columns that identify a row."""
        return {
            "report": self.report,
            "first_day": self.period.first,
            "last_day": self.period.last,
            "level": self.level,
            **dict(zip(NAMES[self.level], names, strict=True)),
        }


def print_tables(args: argparse.Namespace, tables: Sequence[ReportTable]) -> int:
    """Print the rows of all tables as CSV or JSON, or else the lines of each table."""
    style = table_format(args)
    if style == "table":
        for index, table in enumerate(tables):
            print_lines(*[""] * bool(index), table.heading, "", *table.lines())
        return OK
    flat = [row for table in tables for row in table.rows()]
    if style == "json":
        print_json(flat)
    elif tables:
        print_text(f"{csv_table(flat)}\n")
    return OK


def seconds_columns(seconds: Seconds) -> dict[str, int]:
    return {name: getattr(seconds, name.removesuffix("_s")) for name in SECONDS}
