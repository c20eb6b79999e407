"""Options that several commands share, and the period they ask for."""

from __future__ import annotations

import argparse
import logging
import time
from datetime import UTC, date, datetime

from sam_pipeline.schema.program.command import day_argument
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.rules.days import Period, moment, month_of

logger = logging.getLogger(__name__)


def add_period_options(parser: argparse.ArgumentParser) -> None:
    """--day, --from with --to, or --month."""
    group = parser.add_argument_group("period (UTC days; one of --day, --from with --to, --month)")
    group.add_argument("--day", type=day_argument, metavar="YYYY-MM-DD")
    group.add_argument("--from", dest="first", type=day_argument, metavar="YYYY-MM-DD")
    group.add_argument(
        "--to", dest="last", type=day_argument, metavar="YYYY-MM-DD", help="included"
    )
    group.add_argument("--month", type=month_argument, metavar="YYYY-MM")


def add_report_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--report", metavar="NAME", help="default: all reports")


def add_table_option(parser: argparse.ArgumentParser) -> None:
    """--format of flat rows; see table_format."""
    parser.add_argument("--format", choices=["table", "csv", "json"])


def table_format(args: argparse.Namespace) -> str:
    """table, csv or json; --json is short for the last."""
    return str(args.format or ("json" if args.json else "table"))


def warn_if_empty(published: object, period: Period) -> None:
    """Log a warning where a period has no published reports."""
    if not published:
        logger.warning("nothing is published for %s: `sam-report run` computes it", period)


def time_or_none(second: int | None) -> str | None:
    return None if second is None else format_time(moment(second))


def asked_or_due(args: argparse.Namespace, today: date) -> Period | None:
    """The period on the command line, or None for --due.

    Raises:
        ReportUsage: as asked_period; both, or --force without a period.
    """
    if not args.due:
        return asked_period(args, today)
    if _given(args):
        raise ReportUsage(_expected(args))
    if args.force:
        raise ReportUsage("--force needs a period: --due leaves frozen days as they are")
    return None


def asked_period(args: argparse.Namespace, today: date | None = None) -> Period:
    """The period on the command line; a month that still runs ends today.

    Raises:
        ReportUsage: no period, more than one, a reversed one, or one with days in the future.
    """
    today = today or utc_today()
    given = _given(args)
    if given == {"day"}:
        period = Period(args.day, args.day)
    elif given == {"first", "last"}:
        period = Period(args.first, args.last)
    elif given == {"month"}:
        period = Period(args.month.first, max(args.month.first, min(args.month.last, today)))
    else:
        raise ReportUsage(_expected(args))
    if period.last < period.first:
        raise ReportUsage(f"--to {period.last} lies before --from {period.first}")
    if period.last > today:
        raise ReportUsage(f"{period.last} lies in the future: today is {today} (UTC)")
    return period


def utc_today() -> date:
    return datetime.fromtimestamp(time.time(), UTC).date()


def month_argument(text: str) -> Period:
    try:
        return month_of(day_argument(f"{text}-01"))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a month (expected YYYY-MM)") from None


def _given(args: argparse.Namespace) -> set[str]:
    """The options of a period that were given; a command need not have them all."""
    names = ("day", "first", "last", "month")
    return {name for name in names if getattr(args, name, None) is not None}


def _expected(args: argparse.Namespace) -> str:
    ways = ["--day D", "--from D --to D", "--month M", *(["--due"] if "due" in args else [])]
    return f"expected one of {', '.join(ways)}"
