"""`sam-report explain`: a site's day, led back to results, downtimes and exclusions."""

from __future__ import annotations

import argparse
import logging
import time
from datetime import UTC, datetime
from typing import Any

from sam_pipeline.schema.program.command import OK, to_json
from sam_pipeline.spark_jobs.commands.arguments import asked_period, day_argument
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.open import open_database

EXAMPLES = """\
examples:
  sam-report explain --day 2026-11-07 --site SITE-A
  sam-report explain --day 2026-11-07 --site SITE-A --flavour CE --host ce01.example.org
  sam-report explain --day 2026-11-07 --site SITE-A --group         a line for each cause
  sam-report explain --day 2026-11-07 --site SITE-A --ticket        few plain lines to paste

Each time that was not OK leads to what made it: a site's to functions, services, endpoints and
metrics, a metric's to its results. --group masks hosts, times and numbers, so that failures of one
cause are one line: how many, first, last, where, and the newest of them with its message id.
"""
logger = logging.getLogger(__name__)


def add_explain(commands: Any, common: argparse.ArgumentParser) -> None:
    """The subcommand and its options."""
    command = commands.add_parser(
        "explain", parents=[common], help="tell what made a site's figures", epilog=EXAMPLES
    )
    command.add_argument("--day", type=day_argument, required=True, metavar="YYYY-MM-DD")
    command.add_argument("--site", required=True)
    command.add_argument("--flavour", help="only this service flavour")
    command.add_argument("--host", help="only this host")
    forms = command.add_mutually_exclusive_group()
    forms.add_argument("--group", action="store_true", help="fold failures of one cause")
    forms.add_argument("--ticket", action="store_true", help="at most 40 plain lines for a ticket")
    command.add_argument("--report", metavar="NAME", help="default: all reports")
    command.set_defaults(handler=_explain)


def _explain(args: argparse.Namespace) -> int:
    # Other commands need not wait for these.
    from sam_pipeline.spark_jobs.commands.explain_answer import Form, documents, text
    from sam_pipeline.spark_jobs.explain.as_text import Question, read_site_days

    today = datetime.fromtimestamp(time.time(), UTC).date()
    period = asked_period(args, today)
    question = Question(args.site, args.flavour, args.host)
    with reading(open_database(args)) as connection:
        days = read_site_days(connection, args.report, question, args.day)
    if not days:
        logger.warning("nothing is published for %s: `sam-report run` computes it", period)
    form: Form = "ticket" if args.ticket else "group" if args.group else "full"
    if args.json:
        print(to_json(documents(days, question, form)))
    elif days:
        print(text(days, question, form))
    return OK
