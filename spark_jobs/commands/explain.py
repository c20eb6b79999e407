"""`sam-report explain`: a site's day traced back to results, or a group's figure to its members."""

from __future__ import annotations

import argparse
from itertools import groupby
from operator import attrgetter

from sam_pipeline.schema.program.command import OK, print_json, print_lines, text_argument
from sam_pipeline.spark_jobs.command_line import add_published_options, published, requested_period
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.explain import as_json, as_text
from sam_pipeline.spark_jobs.explain.explanation import Selection, read_site_days
from sam_pipeline.spark_jobs.explain.groups import group_json, group_lines, read_groups
from sam_pipeline.spark_jobs.explain.ticket import ticket
from sam_pipeline.spark_jobs.inputs.announced import site_contacts
from sam_pipeline.spark_jobs.profiles.profile import Group
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.runs.summary import period_targets
from sam_pipeline.sql.archive.config import load_archive

EXAMPLES = """\
examples:
  sam-report explain --day 2026-11-07 --site SITE-A
  sam-report explain --day 2026-11-07 --site SITE-A --flavour CE --host ce01.example.org
  sam-report explain --day 2026-11-07 --site SITE-A --by cause      a line for each cause
  sam-report explain --day 2026-11-07 --site SITE-A --ticket        plain lines for a ticket
  sam-report explain --month 2026-11 --site SITE-A                  the worst days, and the causes
  sam-report explain --month 2026-11 --group federation/DE          the members and their weights

Each time that was not OK is traced back to its causes: from the site to functions, services,
endpoints and metrics, and from a metric to its results. With --by cause, failures with the same
text (except for hosts, times and numbers) share a line: how many, first, last, where, and the
newest one with its message id. Failures that cost availability come first, then those in downtime,
excluded or without effect.

The figure of a group is the mean of those of its sites over their days as members. Each weighs as
much as the sum of its weights on the days on which it has a figure.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    of = command.add_mutually_exclusive_group(required=True)
    of.add_argument("--site", type=text_argument, help="the site to explain")
    of.add_argument(
        "--group", type=group_argument, metavar="TYPE/NAME", help="the group of sites to explain"
    )
    command.add_argument("--flavour", type=text_argument, help="only this service flavour")
    command.add_argument("--host", type=text_argument, help="only this host")
    forms = command.add_mutually_exclusive_group()
    forms.add_argument("--by", choices=["cause"], help="a line for each cause of failures")
    forms.add_argument("--ticket", action="store_true", help="at most 40 plain lines to paste")
    add_published_options(command, site=False)
    command.set_defaults(handler=run_explain)


def group_argument(text: str) -> Group:
    """The argparse `type` of a group, `TYPE/NAME`."""
    group_type, _, name = text.partition("/")
    if not group_type or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not a group (expected TYPE/NAME)")
    return group_type, name


def run_explain(args: argparse.Namespace) -> int:
    """Print the explanation of a day in each report: as text, by cause, for a ticket, as JSON.

    The explanation of several days has the worst of them, and the causes with their days; that of a
    group has the days of its members.

    Raises:
        ReportUsage: a ticket about several days or reports, or a site, endpoint or group that is
            not there.
    """
    period = requested_period(args)
    if args.group:
        return _explain_group(args, period)
    several = period.first != period.last
    if several and args.ticket:
        raise ReportUsage("a ticket is about one day; choose one with --day")
    selection = Selection(args.site, args.flavour, args.host)
    with published(args, period) as (connection, reports):
        days = read_site_days(
            connection, reports, selection, period, lambda: load_archive(args).open()
        )
        tickets = []
        for day in days if args.ticket else ():
            targets = period_targets(connection, day.report, period).of_site(day.site)
            contact = site_contacts(connection).get(args.site, "")
            tickets.append(ticket(day, selection, targets, contact))
    if len(tickets) > 1:
        names = ", ".join(day.report for day in days)
        raise ReportUsage(f"a ticket is about one report; choose one with --report: {names}")
    if args.json and args.ticket:
        print_json([{**as_json.about_json(day), "lines": tickets[0]} for day in days])
    elif args.json:
        to_document = as_json.causes_json if args.by or several else as_json.day_json
        print_json([to_document(day, selection) for day in days])
    else:
        if args.ticket:
            texts = tickets
        elif several:
            of_reports = [list(group) for _, group in groupby(days, attrgetter("report"))]
            texts = [as_text.period_lines(of_report, selection) for of_report in of_reports]
        else:
            to_lines = as_text.cause_lines if args.by else as_text.day_lines
            texts = [to_lines(day, selection) for day in days]
        for index, lines in enumerate(texts):
            print_lines(*[""] * bool(index), *lines)
    return OK


def _explain_group(args: argparse.Namespace, period: Period) -> int:
    if args.flavour or args.host or args.by or args.ticket:
        raise ReportUsage("--group does not go with --flavour, --host, --by or --ticket")
    with published(args, period) as (connection, reports):
        explanations = read_groups(connection, reports, args.group, period)
    if args.json:
        print_json(list(map(group_json, explanations)))
        return OK
    for index, explanation in enumerate(explanations):
        print_lines(*[""] * bool(index), *group_lines(explanation))
    return OK
