"""The days a person asks about, on the command line."""

from __future__ import annotations

import argparse
import re
import time
from datetime import UTC, date, datetime
from typing import Any

from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.rules.days import Period, month_of

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def add_period_options(parser: argparse.ArgumentParser) -> None:
    """--day, --from with --to, or --month."""
    group = parser.add_argument_group("period (UTC days; one of --day, --from with --to, --month)")
    group.add_argument("--day", type=day_argument, metavar="YYYY-MM-DD")
    group.add_argument("--from", dest="first", type=day_argument, metavar="YYYY-MM-DD")
    group.add_argument(
        "--to", dest="last", type=day_argument, metavar="YYYY-MM-DD", help="included"
    )
    group.add_argument("--month", type=month_argument, metavar="YYYY-MM")


def add_due_option(parser: argparse.ArgumentParser) -> None:
    """--due, instead of a period."""
    parser.add_argument(
        "--due",
        action="store_true",
        help="instead of a period: every closed day since the first result that was never computed,"
        " or whose inputs changed since",
    )


def asked_or_due(args: argparse.Namespace, today: date) -> Period | None:
    """The period on the command line, or none: what is due.

    Raises:
        ReportUsage: as asked_period; both, or --force without a period.
    """
    if not args.due:
        return asked_period(args, today)
    if any(_given(args)):
        raise ReportUsage(_wanted(args))
    if args.force:
        raise ReportUsage("--force needs a period: --due leaves frozen days as they are")
    return None


def asked_period(args: argparse.Namespace, today: date) -> Period:
    """The period on the command line; a month that still runs ends today.

    Raises:
        ReportUsage: no period, more than one, a reversed one, or one with days in the future.
    """
    day, first, last, month = _options(args)
    if sum(_given(args)) != 1 or (first is None) != (last is None):
        raise ReportUsage(_wanted(args))
    if month is not None:
        period = Period(month.first, max(month.first, min(month.last, today)))
    else:
        period = Period(day, day) if day else Period(first, last)
    if period.last < period.first:
        raise ReportUsage(f"--to {period.last} lies before --from {period.first}")
    if period.last > today:
        raise ReportUsage(f"{period.last} lies in the future: today is {today} (UTC)")
    return period


def utc_today() -> date:
    return datetime.fromtimestamp(time.time(), UTC).date()


def day_argument(text: str) -> date:
    if not _DAY.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no day: want YYYY-MM-DD")
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no day: {error}") from None


def month_argument(text: str) -> Period:
    try:
        return month_of(day_argument(f"{text}-01"))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is no month: want YYYY-MM") from None


def _given(args: argparse.Namespace) -> list[bool]:
    """Which of the three ways to name a period are used."""
    day, first, last, month = _options(args)
    return [day is not None, first is not None or last is not None, month is not None]


def _options(args: argparse.Namespace) -> Any:
    """The day, the first, the last and the month; a command need not have them all."""
    return [getattr(args, name, None) for name in ("day", "first", "last", "month")]


def _wanted(args: argparse.Namespace) -> str:
    ways = ["--day D", "--from D --to D", "--month M", *(["--due"] if "due" in args else [])]
    return f"want one of {', '.join(ways)}"
