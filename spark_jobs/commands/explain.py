"""`sam-report explain`: a site's day, led back to results, downtimes and exclusions."""

from __future__ import annotations

import argparse
from typing import Any

from sam_pipeline.schema.program.command import OK, day_argument, to_json
from sam_pipeline.spark_jobs.commands.arguments import (
    add_report_option,
    asked_period,
    warn_if_empty,
)
from sam_pipeline.spark_jobs.errors import ReportUsage
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
cause are one line: how many, first, last, where, and the newest of them with its message id. What
cost availability comes first, then what failed in downtime, while excluded or without effect.
"""


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    command = commands.add_parser(
        "explain", parents=[common], help="show what made a site's figures", epilog=EXAMPLES
    )
    command.add_argument("--day", type=day_argument, required=True, metavar="YYYY-MM-DD")
    command.add_argument("--site", required=True)
    command.add_argument("--flavour", help="only this service flavour")
    command.add_argument("--host", help="only this host")
    forms = command.add_mutually_exclusive_group()
    forms.add_argument("--group", action="store_true", help="a line for each cause of failures")
    forms.add_argument("--ticket", action="store_true", help="at most 40 plain lines for a ticket")
    add_report_option(command)
    command.set_defaults(handler=_explain)


def _explain(args: argparse.Namespace) -> int:
    # Not needed to parse a command line.
    from sam_pipeline.spark_jobs.explain import as_json, as_text
    from sam_pipeline.spark_jobs.explain.selection import Selection, read_site_days
    from sam_pipeline.spark_jobs.explain.ticket import ticket

    period = asked_period(args)
    selection = Selection(args.site, args.flavour, args.host)
    with reading(open_database(args)) as connection:
        days = read_site_days(connection, args.report, selection, args.day)
    warn_if_empty(days, period)
    if args.ticket and len(days) > 1:
        names = ", ".join(day.report for day in days)
        raise ReportUsage(f"a ticket is about one report; choose one with --report: {names}")
    if args.json and args.ticket:
        print(
            to_json([{**as_json.about_json(day), "lines": ticket(day, selection)} for day in days])
        )
    elif args.json:
        to_document = as_json.causes_json if args.group else as_json.day_json
        print(to_json([to_document(day, selection) for day in days]))
    elif args.ticket and days:
        print("\n".join(ticket(days[0], selection)))
    elif days:
        to_text = as_text.causes_text if args.group else as_text.as_text
        print("\n\n".join(to_text(day, selection) for day in days))
    return OK
