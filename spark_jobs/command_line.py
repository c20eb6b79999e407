"""Options that several commands share, the reports that they select, and tables of figures."""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import NamedTuple

from sqlalchemy import Connection

from sam_pipeline.schema.program.command import (
    OK,
    print_json,
    print_lines,
    print_text,
    text_argument,
    text_table,
)
from sam_pipeline.schema.program.moments import day_argument, month_argument, utc_today
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.exports.files import csv_table
from sam_pipeline.spark_jobs.rules.days import Period, in_ranges, moment, month_of
from sam_pipeline.spark_jobs.rules.levels import NAMES, SECONDS
from sam_pipeline.spark_jobs.rules.seconds import Seconds, rounded, short
from sam_pipeline.spark_jobs.runs.published import (
    Names,
    PublishedRun,
    published_reports,
    require_site,
    until_of,
)
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.database.engine import reading_at_once
from sam_pipeline.sql.database.roles import READER

logger = logging.getLogger(__name__)


def add_period_options(parser: argparse.ArgumentParser) -> None:
    """--day, --from, which is also --since, perhaps with --to, or --month."""
    group = parser.add_argument_group("period (UTC days; one of --day, --from, or --month)")
    for options, dest, meaning in (
        (["--day"], "day", "a single day"),
        (["--from", "--since"], "first", "the first day, for example 30d"),
        (["--to"], "last", "the last day, included (default: today)"),
    ):
        group.add_argument(*options, dest=dest, type=day_argument, metavar="DAY", help=meaning)
    group.add_argument(
        "--month", type=month_argument, metavar="MONTH", help="a month, until today at most"
    )


def add_spark_options(parser: argparse.ArgumentParser) -> None:
    """--master and --conf."""
    parser.add_argument(
        "--master",
        type=text_argument,
        default="local[*]",
        help="the Spark master (default: %(default)s)",
    )
    parser.add_argument(
        "--conf",
        type=setting_argument,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a Spark setting",
    )


def setting_argument(text: str) -> tuple[str, str]:
    """The argparse `type` of a Spark setting, `KEY=VALUE`."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not a setting (expected KEY=VALUE)")
    return key, value


def add_published_options(
    parser: argparse.ArgumentParser, *, site: bool = True, table: bool = False
) -> None:
    """A period, --report, --site, and --format of a table: see `published` and `print_tables`."""
    add_period_options(parser)
    if site:
        add_site_option(parser)
    if table:
        add_table_option(parser)
    add_report_option(parser)


def add_report_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--report", type=text_argument, metavar="NAME", help="only this report (default: all)"
    )


def revision_argument(text: str) -> int:
    """The argparse `type` of the number of a revision of a sealed month."""
    if not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a revision (1, 2, …)")
    return int(text)


def add_site_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--site", type=text_argument, metavar="NAME", help="only this site (default: all)"
    )


def add_table_option(parser: argparse.ArgumentParser) -> None:
    """--format, for output as a table; see table_format."""
    parser.add_argument(
        "--format",
        choices=["table", "csv"],
        help="the output format (default: table)",
    )


def table_format(args: argparse.Namespace) -> str:
    """table, csv or json.

    Raises:
        ReportUsage: both --json and --format.
    """
    if args.json and args.format:
        raise ReportUsage("--json does not go with --format")
    return "json" if args.json else str(args.format or "table")


def requested_or_due(args: argparse.Namespace, today: date) -> Period | None:
    """The period on the command line, or None for --due.

    Raises:
        ReportUsage: see requested_period; or --due together with a period or with --force.
    """
    if not args.due:
        return requested_period(args, today)
    if _given(args):
        raise ReportUsage(_expected(args))
    if args.force:
        raise ReportUsage("--force needs a period: --due leaves frozen days as they are")
    return None


def requested_period(args: argparse.Namespace, today: date | None = None) -> Period:
    """The period on the command line; the current month and the current year end today.

    Raises:
        ReportUsage: no period, several, one that ends before it starts, or one in the future.
    """
    today = today or utc_today()
    given = _given(args)
    if given == {"day"}:
        period = Period(args.day, args.day)
    elif "first" in given and given <= {"first", "last"}:
        period = Period(args.first, args.last or today)
    elif given == {"month"}:
        month = month_of(args.month)
        period = Period(month.first, max(month.first, min(month.last, today)))
    elif given == {"year"}:
        last = date(args.year.year, 12, 31)
        period = Period(args.year, max(args.year, min(last, today)))
    else:
        raise ReportUsage(_expected(args))
    if (newest := max(period.first, period.last)) > today:
        raise ReportUsage(f"{newest} is in the future: today is {today} (UTC)")
    if period.last < period.first:
        raise ReportUsage(f"--to {period.last} is before --from {period.first}")
    return period


def _given(args: argparse.Namespace) -> set[str]:
    """The period options on the command line; a command need not have all of them."""
    names = ("day", "first", "last", "month", "year")
    return {name for name in names if getattr(args, name, None) is not None}


def _expected(args: argparse.Namespace) -> str:
    ways = [
        "--day D",
        "--from D [--to D]",
        "--month M",
        *(f"--{name}" for name in ("year", "due") if name in args),
    ]
    return f"expected one of {', '.join(ways)}"


@contextmanager
def published(
    args: argparse.Namespace, period: Period, site: str | None = None
) -> Iterator[tuple[Connection, list[str]]]:
    """A connection, and the reports with figures in the period, all or the one of --report.

    If there are none, a warning follows.

    Raises:
        ReportUsage: no such report, or none of them has figures of the site.
    """
    with reading_at_once(open_database(args, READER)) as connection:
        reports = published_reports(connection, args.report, period)
        if site is not None:
            require_site(connection, reports, site, period)
        yield connection, reports
    if not reports:
        logger.warning("nothing is published for %s: `sam-report run` computes it", period)


def print_list(
    args: argparse.Namespace,
    documents: Sequence[Mapping[str, object]],
    rows: Iterable[Mapping[str, object]],
    none: str,
) -> int:
    """Print a list: as JSON the documents, else a table of the rows, or the line `none`."""
    cells = list(rows)
    if args.json:
        print_json(documents)
    elif cells:
        print_lines(*text_table(list(cells[0]), [list(row.values()) for row in cells]))
    else:
        print_lines(none)
    return OK


def time_or_none(second: int | None) -> str | None:
    return None if second is None else format_time(moment(second))


class TableCell(NamedTuple):
    """A cell of a row.

    CSV and JSON have the `value` under `name`, the table has the `text` under `title`; a cell
    without a name or without a title is left out there.
    """

    name: str
    value: object
    title: str
    text: object


Row = list[TableCell]


def both(**values: object) -> Row:
    """Cells that are the same in files and in the table."""
    return [TableCell(name, value, name, value) for name, value in values.items()]


def in_files(**values: object) -> Row:
    """Cells of CSV and JSON only."""
    return [TableCell(name, value, "", None) for name, value in values.items()]


def in_table(**texts: object) -> Row:
    """Cells of the table only; the title has blanks for underscores."""
    return [TableCell("", None, name.replace("_", " "), text) for name, text in texts.items()]


def percentages(**values: Fraction | None) -> Row:
    """Percentages: with 5 decimals in files, and shorter in the table."""
    return [TableCell(name, rounded(value), name, short(value)) for name, value in values.items()]


def seconds_columns(seconds: Seconds, shown: Collection[str] = ()) -> Row:
    """The seconds of each status, in files; those `shown` also in the table."""
    of = {name: getattr(seconds, name.removesuffix("_s")) for name in SECONDS}
    return [TableCell(name, of[name], name if name in shown else "", of[name]) for name in SECONDS]


@dataclass(frozen=True)
class ReportTable:
    """A table of one report, with a row for each thing of a level over a period."""

    report: str
    level: str
    period: Period
    runs: Sequence[PublishedRun]

    def rows(self) -> Iterator[Row]:
        """The rows, all with the same columns."""
        raise NotImplementedError

    def notes(self) -> Iterable[str]:
        """The lines below the table."""
        return ()

    @property
    def heading(self) -> str:
        until = until_of(self.runs)
        heading = f"{self.report}, {self.period}"
        if until:
            heading += f" (until {time_or_none(until)})"
        if archived := [run.day for run in self.runs if run.day in run.archived]:
            heading += f" (from the archive: {in_ranges(archived)})"
        return heading

    @property
    def about(self) -> Row:
        """The columns of files that are the same in all rows."""
        first, last = self.period.first, self.period.last
        return in_files(report=self.report, first_day=first, last_day=last)

    def named(self, names: Names) -> Row:
        """The columns that identify a row."""
        own = both(**dict(zip(NAMES[self.level], names, strict=True)))
        return [*self.about, *in_files(level=self.level), *own]

    def lines(self) -> Iterator[str]:
        """The table as text, with its heading and notes."""
        yield from (self.heading, "")
        rows = [[cell for cell in row if cell.title] for row in self.rows()]
        if rows:
            titles = [cell.title for cell in rows[0]]
            yield from text_table(titles, [[cell.text for cell in row] for row in rows])
        notes = list(self.notes())
        yield from ["", *notes] if rows and notes else notes


def print_tables(args: argparse.Namespace, tables: Sequence[ReportTable]) -> int:
    """Print the rows of all tables as CSV or JSON, or else the lines of each table."""
    style = table_format(args)
    if style == "table":
        for index, table in enumerate(tables):
            print_lines(*[""] * bool(index), *table.lines())
        return OK
    flat = [
        {cell.name: cell.value for cell in row if cell.name}
        for table in tables
        for row in table.rows()
    ]
    if style == "json":
        print_json(flat)
    elif tables:
        print_text(f"{csv_table(flat)}\n")
    return OK
