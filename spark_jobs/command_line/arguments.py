"""Options that several commands share, and the period that they select."""

from __future__ import annotations

import argparse
import logging
from datetime import date
from typing import Any

from sam_pipeline.schema.program.command import (
    CommandParser,
    common_options,
    text_argument,
)
from sam_pipeline.schema.program.moments import day_argument, month_argument, utc_today
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.rules.days import Period, moment, month_of

logger = logging.getLogger(__name__)


def add_action(actions: Any, name: str, summary: str, examples: str) -> CommandParser:
    """Add an action to `actions` (of add_subparsers); its help starts with the summary."""
    parser: CommandParser = actions.add_parser(
        name,
        parents=[common_options()],
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=examples,
    )
    return parser


def add_period_options(parser: argparse.ArgumentParser) -> None:
    """--day, --from with --to, or --month."""
    group = parser.add_argument_group(
        "period (UTC days; one of --day, --from with --to, or --month)"
    )
    for option, dest, meaning in (
        ("--day", "day", "a single day"),
        ("--from", "first", "the first day"),
        ("--to", "last", "the last day (included)"),
    ):
        group.add_argument(option, dest=dest, type=day_argument, metavar="DAY", help=meaning)
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


def add_report_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--report", type=text_argument, metavar="NAME", help="only this report (default: all)"
    )


def add_site_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--site", type=text_argument, metavar="NAME", help="only this site (default: all)"
    )


def add_table_option(parser: argparse.ArgumentParser) -> None:
    """--format, for output as a table; see table_format."""
    parser.add_argument(
        "--format",
        choices=["table", "csv", "json"],
        help="the output format (default: table, or json with --json)",
    )


def table_format(args: argparse.Namespace) -> str:
    """table, csv or json; --json is short for --format json."""
    return str(args.format or ("json" if args.json else "table"))


def warn_if_empty(published: object, period: Period) -> None:
    """Log a warning if nothing is published for the period."""
    if not published:
        logger.warning("nothing is published for %s: `sam-report run` computes it", period)


def time_or_none(second: int | None) -> str | None:
    return None if second is None else format_time(moment(second))


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
    """The period on the command line; the current month ends today.

    Raises:
        ReportUsage: no period, several, one that ends before it starts, or one in the future.
    """
    today = today or utc_today()
    given = _given(args)
    if given == {"day"}:
        period = Period(args.day, args.day)
    elif given == {"first", "last"}:
        period = Period(args.first, args.last)
    elif given == {"month"}:
        month = month_of(args.month)
        period = Period(month.first, max(month.first, min(month.last, today)))
    else:
        raise ReportUsage(_expected(args))
    if period.last < period.first:
        raise ReportUsage(f"--to {period.last} is before --from {period.first}")
    if period.last > today:
        raise ReportUsage(f"{period.last} is in the future: today is {today} (UTC)")
    return period


def _given(args: argparse.Namespace) -> set[str]:
    """The period options on the command line; a command need not have all of them."""
    names = ("day", "first", "last", "month")
    return {name for name in names if getattr(args, name, None) is not None}


def _expected(args: argparse.Namespace) -> str:
    ways = ["--day D", "--from D --to D", "--month M", *(["--due"] if "due" in args else [])]
    return f"expected one of {', '.join(ways)}"
