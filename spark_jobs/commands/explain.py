"""`sam-report explain`: a site's day, traced back to results, downtimes and exclusions."""

from __future__ import annotations

import argparse
from itertools import groupby
from operator import attrgetter

from sam_pipeline.schema.program.command import (
    OK,
    print_json,
    print_lines,
    text_argument,
)
from sam_pipeline.spark_jobs.command_line.arguments import (
    add_period_options,
    add_report_option,
    requested_period,
    warn_if_empty,
)
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.sql.archive.config import load_archive
from sam_pipeline.sql.database.engine import reading_at_once
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.database.roles import READER

EXAMPLES = """\
examples:
  sam-report explain --day 2026-11-07 --site SITE-A
  sam-report explain --day 2026-11-07 --site SITE-A --flavour CE --host ce01.example.org
  sam-report explain --day 2026-11-07 --site SITE-A --group         a line for each cause
  sam-report explain --day 2026-11-07 --site SITE-A --ticket        plain lines for a ticket
  sam-report explain --month 2026-11 --site SITE-A                  the worst days, and the causes

Each time that was not OK is traced back to its causes: from the site to functions, services,
endpoints and metrics, and from a metric to its results. With --group, failures with the same text
(except for hosts, times and numbers) share a line: how many, first, last, where, and the newest one
with its message id. Failures that cost availability come first, then those in downtime, excluded or
without effect.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    add_period_options(command)
    command.add_argument("--site", required=True, type=text_argument, help="the site to explain")
    command.add_argument("--flavour", type=text_argument, help="only this service flavour")
    command.add_argument("--host", type=text_argument, help="only this host")
    forms = command.add_mutually_exclusive_group()
    forms.add_argument("--group", action="store_true", help="a line for each cause of failures")
    forms.add_argument("--ticket", action="store_true", help="at most 40 plain lines to paste")
    add_report_option(command)
    command.set_defaults(handler=run_explain)


def run_explain(args: argparse.Namespace) -> int:
    """Print the explanation of a day in each report: as text, by cause, for a ticket, as JSON.

    The explanation of several days has the worst of them, and the causes with their days.

    Raises:
        ReportUsage: a ticket about several days or reports, or a site or endpoint that is not
            there.
    """
    # Not needed to parse a command line.
    from sam_pipeline.spark_jobs.explain import as_json, as_text
    from sam_pipeline.spark_jobs.explain.selection import Selection, read_site_days
    from sam_pipeline.spark_jobs.explain.ticket import ticket
    from sam_pipeline.spark_jobs.inputs.announced import contact_of
    from sam_pipeline.spark_jobs.runs.summary import period_targets

    period = requested_period(args)
    several = period.first != period.last
    if several and args.ticket:
        raise ReportUsage("a ticket is about one day; choose one with --day")
    selection = Selection(args.site, args.flavour, args.host)
    with reading_at_once(open_database(args, READER)) as connection:
        days = read_site_days(
            connection, args.report, selection, period, lambda: load_archive(args).open()
        )
        targets = [
            period_targets(connection, day.report, period).of_site(day.site)
            for day in days
            if args.ticket
        ]
        contact = contact_of(connection, args.site)
    warn_if_empty(days, period)
    if args.ticket and len(days) > 1:
        names = ", ".join(day.report for day in days)
        raise ReportUsage(f"a ticket is about one report; choose one with --report: {names}")
    if args.ticket:
        tickets = [
            ticket(day, selection, of_site, contact)
            for day, of_site in zip(days, targets, strict=True)
        ]
    if args.json and args.ticket:
        print_json(
            [
                {**as_json.about_json(day), "lines": lines}
                for day, lines in zip(days, tickets, strict=True)
            ]
        )
    elif args.json:
        to_document = as_json.causes_json if args.group or several else as_json.day_json
        print_json([to_document(day, selection) for day in days])
    elif args.ticket and days:
        print_lines(*tickets[0])
    elif several:
        for index, (_, of_report) in enumerate(groupby(days, attrgetter("report"))):
            print_lines(*[""] * bool(index), *as_text.period_lines(list(of_report), selection))
    elif days:
        to_lines = as_text.cause_lines if args.group else as_text.day_lines
        for index, day in enumerate(days):
            print_lines(*[""] * bool(index), *to_lines(day, selection))
    return OK
