"""`sam-report seal`: freeze the published figures of a month, or list the sealed months."""

from __future__ import annotations

import argparse
import logging
import time

from sam_pipeline.schema.program.command import (
    OK,
    print_done,
    print_json,
    print_lines,
    text_argument,
    text_table,
)
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.command_line.arguments import (
    add_report_option,
    month_argument,
)
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.rules.days import moment
from sam_pipeline.spark_jobs.runs.lock import run_lock
from sam_pipeline.spark_jobs.runs.published import published_reports
from sam_pipeline.spark_jobs.runs.seal import Seal, seal, seals
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.database.open import open_database

EXAMPLES = """\
examples:
  sam-report seal --month 2026-10 --who "Jane Doe"
  sam-report seal --month 2026-10 --who "Jane Doe" --report critical
  sam-report seal --list

Later changes in a sealed month are computed as usual, but not published: they become candidates,
and the sealed figures stay. Sealing the month again publishes its candidates.
"""
_COLUMNS = ("report", "month", "who", "sealed at", "candidate days", "figures changed", "reasons")

logger = logging.getLogger(__name__)


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    action = command.add_mutually_exclusive_group(required=True)
    action.add_argument(
        "--month",
        type=month_argument,
        metavar="YYYY-MM",
        help="seal this month, which must be over",
    )
    action.add_argument(
        "--list", action="store_true", help="list the sealed months, and what would change in them"
    )
    command.add_argument(
        "--who", type=text_argument, metavar="NAME", help="the person responsible for the figures"
    )
    add_report_option(command)
    command.set_defaults(handler=lambda args: run_list(args) if args.list else run_seal(args))


def run_list(args: argparse.Namespace) -> int:
    """Print the sealed months and their candidates."""
    if args.who is not None:
        raise ReportUsage("--who goes with --month, not with --list")
    with reading(open_database(args)) as connection:
        sealed = [entry for entry in seals(connection) if args.report in (None, entry.report)]
    if args.json:
        print_json([_as_json(entry) for entry in sealed])
    elif sealed:
        rows = [
            [
                entry.report,
                entry.month,
                entry.who,
                format_time(entry.sealed_at),
                len(entry.candidates),
                entry.figures,
                ", ".join(entry.reasons),
            ]
            for entry in sealed
        ]
        print_lines(*text_table(_COLUMNS, rows))
    return OK


def run_seal(args: argparse.Namespace) -> int:
    """Seal a month, publishing its candidates if it was sealed before."""
    now = int(time.time())
    if args.who is None or not args.who.strip():
        raise ReportUsage("--who NAME is required: the person responsible for the figures")
    if moment(now).date() <= args.month.last:
        raise ReportUsage(f"{args.month.first:%Y-%m} is not over")
    engine = open_database(args)
    with reading(engine) as connection:
        reports = published_reports(connection, args.report, args.month)
    with run_lock(engine, reports, logger.warning), writing(engine) as connection:
        sealed = seal(connection, args.report, args.month, args.who.strip(), now)
    if args.json:
        print_json([_as_json(entry) for entry in sealed])
        return OK
    for entry in sealed:
        line = f"{entry.report} {entry.month}: sealed by {entry.who}"
        if entry.candidates:
            days, figures = len(entry.candidates), entry.figures
            line += f", candidates of {plural(days, 'day')} published"
            line += f": {plural(figures, 'figure')} changed"
        print_done(args, line)
    return OK


def _as_json(entry: Seal) -> dict[str, object]:
    return {
        "report": entry.report,
        "month": entry.month,
        "who": entry.who,
        "sealed_at": entry.sealed_at,
        "candidates": [
            {"day": run.day, "figures_changed": run.figures, "reasons": run.reasons}
            for run in entry.candidates
        ],
    }
