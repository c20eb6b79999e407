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
from sam_pipeline.schema.program.moments import month_argument
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.command_line.arguments import (
    add_report_option,
)
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.rules.days import moment, month_of
from sam_pipeline.spark_jobs.runs.changes import candidate_effects, shown
from sam_pipeline.spark_jobs.runs.published import published_reports
from sam_pipeline.spark_jobs.runs.record import run_lock
from sam_pipeline.spark_jobs.runs.seal import (
    Seal,
    complete_reports,
    days_with_figures,
    seal,
    seals,
)
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.database.roles import READER, REPORTER

EXAMPLES = """\
examples:
  sam-report seal --month 2026-10 --who "Jane Doe"
  sam-report seal --month 2026-10 --who "Jane Doe" --report critical
  sam-report seal --month 2026-10 --dry-run
                             check the month, and print what the next seal would change in it
  sam-report seal --list

Later changes in a sealed month are computed as usual, but not published: they become candidates,
and the sealed figures stay. Sealing the month again publishes its candidates as a new revision.
`--list --json` shows who sealed each revision, and when.
"""
_COLUMNS = (
    "report",
    "month",
    "revision",
    "who",
    "sealed at",
    "candidate days",
    "figures changed",
    "reasons",
)

logger = logging.getLogger(__name__)


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    action = command.add_mutually_exclusive_group(required=True)
    action.add_argument(
        "--month",
        type=lambda text: month_of(month_argument(text)),
        metavar="MONTH",
        help="seal this month, which must be over",
    )
    action.add_argument(
        "--list", action="store_true", help="list the sealed months, and what would change in them"
    )
    command.add_argument(
        "--dry-run",
        action="store_true",
        help="with --month: change nothing, print the effect of the candidates on the month",
    )
    command.add_argument(
        "--who", type=text_argument, metavar="NAME", help="the person responsible for the figures"
    )
    add_report_option(command)
    command.set_defaults(handler=lambda args: run_list(args) if args.list else run_seal(args))


def run_list(args: argparse.Namespace) -> int:
    """Print the sealed months and their candidates."""
    for option, given in (("--who", args.who is not None), ("--dry-run", args.dry_run)):
        if given:
            raise ReportUsage(f"{option} goes with --month, not with --list")
    with reading(open_database(args, READER)) as connection:
        sealed = seals(connection, args.report)
    if args.json:
        print_json([_as_json(entry) for entry in sealed])
    elif sealed:
        rows = [
            [
                entry.report,
                entry.month,
                entry.newest.revision,
                entry.newest.who,
                format_time(entry.newest.sealed_at),
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
    if not args.dry_run and (args.who is None or not args.who.strip()):
        raise ReportUsage("--who NAME is required: the person responsible for the figures")
    if moment(now).date() <= args.month.last:
        raise ReportUsage(f"{args.month.first:%Y-%m} is not over")
    if args.dry_run:
        return _dry_run(args)
    engine = open_database(args, REPORTER)
    with reading(engine) as connection:
        reports = published_reports(connection, args.report, args.month)
    with run_lock(engine, reports, logger.warning), writing(engine) as connection:
        sealed = seal(connection, args.report, args.month, args.who.strip(), now)
        computed = [days_with_figures(connection, entry.report, args.month) for entry in sealed]
    if args.json:
        print_json(
            [{**_as_json(entry), "days": n} for entry, n in zip(sealed, computed, strict=True)]
        )
        return OK
    in_month = len(list(args.month.days()))
    for entry, number in zip(sealed, computed, strict=True):
        newest = entry.newest
        line = f"{entry.report} {entry.month}: sealed by {newest.who}, revision {newest.revision}"
        if number < in_month:
            line += f", {number} of {in_month} days: before them there are no results"
        if entry.candidates:
            days, figures = len(entry.candidates), entry.figures
            line += f", candidates of {plural(days, 'day')} published"
            line += f": {plural(figures, 'figure')} changed"
        print_done(args, line)
    return OK


def _dry_run(args: argparse.Namespace) -> int:
    """Print what sealing the month would change in its figures."""
    with reading(open_database(args, READER)) as connection:
        reports = complete_reports(connection, args.report, args.month)
        known = {entry.report: entry for entry in seals(connection, args.report, args.month)}
        effects = {name: candidate_effects(connection, name, args.month) for name in reports}
    documents: list[dict[str, object]] = []
    for name in reports:
        sealed = known.get(name)
        revision = 1 if sealed is None else sealed.newest.revision + 1
        days, figures = (0, 0) if sealed is None else (len(sealed.candidates), sealed.figures)
        sites = []
        for effect in effects[name]:
            (availability, reliability, unknown), after = shown(effect.before), shown(effect.after)
            sites.append(
                {
                    "site": effect.site,
                    "availability": availability,
                    "availability_after": after[0],
                    "reliability": reliability,
                    "reliability_after": after[1],
                    "unknown": unknown,
                    "unknown_after": after[2],
                }
            )
        month = f"{args.month.first:%Y-%m}"
        documents.append(
            {
                "report": name,
                "month": month,
                "revision": revision,
                "candidate_days": days,
                "figures_changed": figures,
                "sites": sites,
            }
        )
        if not args.json:
            would = f"{plural(figures, 'figure')} of {plural(days, 'day')} would change"
            print_lines(f"{name} {month}: would be revision {revision}, {would}")
            if sites:
                rows = [list(site.values()) for site in sites]
                print_lines(*text_table([key.replace("_", " ") for key in sites[0]], rows), "")
    if args.json:
        print_json(documents)
    return OK


def _as_json(entry: Seal) -> dict[str, object]:
    return {
        "report": entry.report,
        "month": entry.month,
        "revision": entry.newest.revision,
        "who": entry.newest.who,
        "sealed_at": entry.newest.sealed_at,
        "revisions": [vars(revision) for revision in entry.revisions],
        "candidates": [
            {"day": run.day, "figures_changed": run.figures, "reasons": run.reasons}
            for run in entry.candidates
        ],
    }
