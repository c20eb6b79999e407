"""`sam-report trends`: what flaps."""

from __future__ import annotations

import argparse
import logging
from typing import Any

from sam_pipeline.schema.program.command import OK, to_json
from sam_pipeline.spark_jobs.commands.arguments import add_period_options, asked_period, utc_today
from sam_pipeline.spark_jobs.commands.trends_text import as_rows, as_text, read_trends
from sam_pipeline.spark_jobs.exports.spreadsheet import csv_table
from sam_pipeline.spark_jobs.rules.levels import GROUP, NAMES, SITE
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.open import open_database

EXAMPLES = """\
examples:
  sam-report trends --day 2026-11-14
  sam-report trends --level endpoint --month 2026-11 --top 20
  sam-report trends --level metric --from 2026-11-01 --to 2026-11-07 --format csv

What changed its status most often comes first; what never did is left out. Of several days the
changes are added up: as in ARGO a day begins anew, so that a change across midnight does not count.
"""

logger = logging.getLogger(__name__)


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """The command and its options."""
    command = commands.add_parser(
        "trends",
        parents=[common],
        help="print what changed its status, and how often",
        epilog=EXAMPLES,
    )
    levels = [level for level in NAMES if level != GROUP]
    command.add_argument("--level", choices=levels, default=SITE)
    add_period_options(command)
    command.add_argument("--top", type=_number, metavar="N", help="only the first N of each report")
    command.add_argument("--format", choices=["table", "csv", "json"])
    command.add_argument("--report", metavar="NAME", help="default: all reports")
    command.set_defaults(handler=trends)


def trends(args: argparse.Namespace) -> int:
    """Print them."""
    period = asked_period(args, utc_today())
    with reading(open_database(args)) as connection:
        found = read_trends(connection, args.report, args.level, period)
    if not found:
        logger.warning("nothing is published for %s: `sam-report run` computes it", period)
    style = args.format or ("json" if args.json else "table")
    if style == "json":
        print(to_json(as_rows(found, args.top)))
    elif found:
        rows = as_rows(found, args.top)
        print(csv_table(rows) if style == "csv" else as_text(found, args.top))
    return OK


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number: want one from 1 on")
    return int(text)
