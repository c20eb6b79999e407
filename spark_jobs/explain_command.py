"""`sam-report explain`: a site's day, led back to results, downtimes and exclusions."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from schema.command import OK, to_json
from spark_jobs.arguments import asked_period, day_argument
from spark_jobs.errors import ReportUsage
from spark_jobs.explain import Question, as_text, causes_text, read_site_days, site_causes
from spark_jobs.explain_json import about_json, causes_json, day_json
from spark_jobs.explanation import SiteDay
from spark_jobs.ticket import MAX_LINES, ticket
from sql.database import open_database
from sql.engine import reading

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
# More reports leave each of them too few lines of a ticket.
_MOST_REPORTS = 3

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
    forms.add_argument(
        "--ticket", action="store_true", help=f"at most {MAX_LINES} plain lines for a ticket"
    )
    command.add_argument("--report", metavar="NAME", help="default: all reports")
    command.set_defaults(handler=_explain)


def _explain(args: argparse.Namespace) -> int:
    today = datetime.fromtimestamp(time.time(), UTC).date()
    period = asked_period(args, today)
    question = Question(args.site, args.flavour, args.host)
    with reading(open_database(args)) as connection:
        days = read_site_days(connection, args.report, question, args.day)
    if not days:
        logger.warning("nothing is published for %s: `sam-report run` computes it", period)
    if args.json:
        print(to_json(_documents(args, days, question)))
    elif days:
        print(_text(args, days, question))
    return OK


def _text(args: argparse.Namespace, days: Sequence[SiteDay], question: Question) -> str:
    if args.ticket:
        told = ["\n".join(lines) for lines in _tickets(days, question)]
    else:
        told = [(causes_text if args.group else as_text)(each, question) for each in days]
    return "\n\n".join(told)


def _documents(
    args: argparse.Namespace, days: Sequence[SiteDay], question: Question
) -> list[dict[str, Any]]:
    if args.ticket:
        tickets = zip(days, _tickets(days, question), strict=True)
        return [{**about_json(each), "lines": lines} for each, lines in tickets]
    if args.group:
        return [causes_json(each, site_causes(each, question)) for each in days]
    return [day_json(each, question.things(each)) for each in days]


def _tickets(days: Sequence[SiteDay], question: Question) -> list[list[str]]:
    """A ticket of each report; together they have the lines of one."""
    if len(days) > _MOST_REPORTS:
        names = ", ".join(each.report for each in days)
        raise ReportUsage(f"{len(days)} reports have this day: choose one by --report: {names}")
    lines = (MAX_LINES + 1) // max(1, len(days)) - 1
    return [ticket(each, question, lines) for each in days]
