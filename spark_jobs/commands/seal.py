"""`sam-report seal`: freeze the published figures of a month, and list and show sealed months."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence
from itertools import chain
from typing import Any

from sam_pipeline.schema.program.command import (
    OK,
    add_action,
    print_done,
    print_json,
    print_lines,
    text_argument,
    text_table,
)
from sam_pipeline.schema.program.moments import month_argument
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.command_line import add_report_option, print_list
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.rules.days import Period, moment, month_of
from sam_pipeline.spark_jobs.runs.changes import MonthEffect, candidate_effects, shown
from sam_pipeline.spark_jobs.runs.published import published_reports
from sam_pipeline.spark_jobs.runs.record import run_lock
from sam_pipeline.spark_jobs.runs.seal import Seal, complete_reports, days_with_figures, seal, seals
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.database.roles import READER, REPORTER

EXAMPLES = """\
examples:
  sam-report seal add --month last-month --who "Jane Doe"
  sam-report seal list
  sam-report seal show --month 2026-10

Later changes in a sealed month are computed as usual, but not published: they become candidates,
and the sealed figures stay. Sealing the month again publishes its candidates as a new revision.
"""
ADD_EXAMPLES = """\
examples:
  sam-report seal add --month last-month --who "Jane Doe"
  sam-report seal add --month 2026-10 --who "Jane Doe" --report critical
  sam-report seal add --month 2026-10 --dry-run    what the next seal would change in the month
"""
_EFFECT = (
    *("site", "availability", "availability_after", "reliability", "reliability_after"),
    *("unknown", "unknown_after"),
)

logger = logging.getLogger(__name__)


def add_options(group: argparse.ArgumentParser) -> None:
    group.epilog = EXAMPLES
    actions = group.add_subparsers()
    command = add_action(actions, "add", run_add, "seal a month, or seal it again", ADD_EXAMPLES)
    _add_month(command, "the month, which must be over")
    command.add_argument(
        "--who", type=text_argument, metavar="NAME", help="the person responsible for the figures"
    )
    command.add_argument(
        "--dry-run",
        action="store_true",
        help="change nothing, print the effect of the candidates on the month",
    )
    add_report_option(command)
    summary = "list the sealed months, and how much would change in them"
    command = add_action(actions, "list", run_list, summary)
    add_report_option(command)
    summary = "show who sealed a month and when, and what its candidates would change"
    command = add_action(actions, "show", run_show, summary)
    _add_month(command, "the sealed month")
    add_report_option(command)


def _add_month(command: argparse.ArgumentParser, text: str) -> None:
    command.add_argument("--month", required=True, type=month_argument, metavar="MONTH", help=text)


def run_add(args: argparse.Namespace) -> int:
    """Seal a month, publishing its candidates if it was sealed before."""
    now, month = int(time.time()), month_of(args.month)
    if not args.dry_run and args.who is None:
        raise ReportUsage("--who NAME is required: the person responsible for the figures")
    if moment(now).date() <= month.last:
        raise ReportUsage(f"{month.first:%Y-%m} is not over")
    if args.dry_run:
        return _dry_run(args, month)
    engine = open_database(args, REPORTER)
    with reading(engine) as connection:
        reports = published_reports(connection, args.report, month)
    with run_lock(engine, reports, logger.warning), writing(engine) as connection:
        sealed = seal(connection, args.report, month, args.who, now)
        computed = [days_with_figures(connection, entry.report, month) for entry in sealed]
    if args.json:
        print_json(
            [{**_as_json(entry), "days": n} for entry, n in zip(sealed, computed, strict=True)]
        )
        return OK
    in_month = month.last.day
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


def run_list(args: argparse.Namespace) -> int:
    """Print the sealed months."""
    with reading(open_database(args, READER)) as connection:
        sealed = seals(connection, args.report)
    rows = [
        {
            "report": entry.report,
            "month": entry.month,
            "revision": entry.newest.revision,
            "who": entry.newest.who,
            "sealed at": format_time(entry.newest.sealed_at),
            "candidate days": len(entry.candidates),
            "figures changed": entry.figures,
            "reasons": ", ".join(entry.reasons),
        }
        for entry in sealed
    ]
    return print_list(args, list(map(_as_json, sealed)), rows, "no sealed months")


def run_show(args: argparse.Namespace) -> int:
    """Print the revisions of a sealed month, its candidates, and their effect.

    Raises:
        ReportUsage: the month is not sealed.
    """
    month = month_of(args.month)
    with reading(open_database(args, READER)) as connection:
        sealed = seals(connection, args.report, month)
        effects = [candidate_effects(connection, entry.report, month) for entry in sealed]
    if not sealed:
        raise ReportUsage(f"{month.first:%Y-%m} is not sealed; `sam-report seal list` shows months")
    documents = []
    for index, (entry, of_entry) in enumerate(zip(sealed, effects, strict=True)):
        sites = _effects_json(of_entry)
        documents.append({**_as_json(entry), "sites": sites})
        if not args.json:
            print_lines(*[""] * bool(index), f"{entry.report} {entry.month}")
            print_lines(*(f"  sealed {revision}" for revision in entry.revisions))
            for run in entry.candidates:
                figures = f"{plural(run.figures, 'figure')} would change"
                print_lines(f"  candidate {run.day}: {figures} ({', '.join(run.reasons)})")
            _print_effects(sites)
    if args.json:
        print_json(documents)
    return OK


def _dry_run(args: argparse.Namespace, month: Period) -> int:
    """Print what sealing the month would change in its figures."""
    with reading(open_database(args, READER)) as connection:
        reports = complete_reports(connection, args.report, month)
        known = {entry.report: entry for entry in seals(connection, args.report, month)}
        effects = {name: candidate_effects(connection, name, month) for name in reports}
    documents: list[dict[str, object]] = []
    for name in reports:
        sealed = known.get(name)
        revision = 1 if sealed is None else sealed.newest.revision + 1
        days, figures = (0, 0) if sealed is None else (len(sealed.candidates), sealed.figures)
        sites = _effects_json(effects[name])
        documents.append(
            {
                "report": name,
                "month": f"{month.first:%Y-%m}",
                "revision": revision,
                "candidate_days": days,
                "figures_changed": figures,
                "sites": sites,
            }
        )
        if not args.json:
            would = f"{plural(figures, 'figure')} of {plural(days, 'day')} would change"
            print_lines(f"{name} {month.first:%Y-%m}: would be revision {revision}, {would}")
            _print_effects(sites)
    if args.json:
        print_json(documents)
    return OK


def _effects_json(effects: Sequence[MonthEffect]) -> list[dict[str, Any]]:
    return [
        dict(
            zip(
                _EFFECT,
                (effect.site, *chain(*zip(shown(effect.before), shown(effect.after), strict=True))),
                strict=True,
            )
        )
        for effect in effects
    ]


def _print_effects(sites: Sequence[dict[str, Any]]) -> None:
    if sites:
        columns = [key.replace("_", " ") for key in sites[0]]
        print_lines(*text_table(columns, [list(site.values()) for site in sites]), "")


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
