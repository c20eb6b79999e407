"""`sam-report seal`: freeze the published figures of a month, and list and show sealed months."""

from __future__ import annotations

import argparse
import logging
import time

from sam_pipeline.schema.program.command import (
    OK,
    add_action,
    print_done,
    print_json,
    print_lines,
    text_argument,
)
from sam_pipeline.schema.program.moments import month_argument
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.command_line import (
    add_report_option,
    print_list,
    revision_argument,
)
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.explain.checklist import checklist
from sam_pipeline.spark_jobs.explain.revisions import moved_figures, moved_json, moved_lines
from sam_pipeline.spark_jobs.rules.days import Period, moment, month_of
from sam_pipeline.spark_jobs.runs.published import published_reports
from sam_pipeline.spark_jobs.runs.record import run_lock
from sam_pipeline.spark_jobs.runs.seal import (
    Seal,
    complete_reports,
    days_with_figures,
    require_revisions,
    seal,
    sealed_reports,
    seals,
)
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.database.engine import reading, reading_at_once, writing
from sam_pipeline.sql.database.roles import READER, REPORTER

EXAMPLES = """\
examples:
  sam-report seal add --month last-month --who "Jane Doe"
  sam-report seal list
  sam-report seal show --month 2026-10
  sam-report seal compare --month 2026-10 1 2

Later changes in a sealed month are computed as usual, but not published: they become candidates,
and the sealed figures stay. Sealing the month again publishes its candidates as a new revision; the
figures of all revisions stay readable.
"""
ADD_EXAMPLES = """\
examples:
  sam-report seal add --month last-month --who "Jane Doe"
  sam-report seal add --month 2026-10 --dry-run    what to look at before, and what would change
  sam-report seal add --month 2026-10 --who "Jane Doe" --reason "exclusion 1 agreed with the sites"
"""
COMPARE_EXAMPLES = """\
examples:
  sam-report seal compare --month 2026-10 1 2
  sam-report seal compare --month 2026-10 1 3 --report critical --json
"""
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
        "--reason",
        type=text_argument,
        metavar="TEXT",
        help="why the month is sealed; required to seal it again",
    )
    command.add_argument(
        "--dry-run",
        action="store_true",
        help="change nothing, print what to look at before and what the candidates would change",
    )
    add_report_option(command)
    summary = "list the sealed months, and how much would change in them"
    command = add_action(actions, "list", run_list, summary)
    add_report_option(command)
    summary = "show the revisions of a month, or what one of them changed"
    command = add_action(actions, "show", run_show, summary)
    _add_month(command, "the sealed month")
    command.add_argument(
        "revision",
        nargs="?",
        type=revision_argument,
        metavar="N",
        help="a revision (default: all, and what the candidates would change)",
    )
    add_report_option(command)
    summary = "show which figures moved between two revisions, and why"
    command = add_action(actions, "compare", run_compare, summary, COMPARE_EXAMPLES)
    _add_month(command, "the sealed month")
    for name, text in (("before", "the older revision"), ("after", "the newer revision")):
        command.add_argument(name, type=revision_argument, metavar=name[0].upper(), help=text)
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
        sealed, unchanged = seal(connection, args.report, month, args.who, args.reason or "", now)
        days = {e.report: days_with_figures(connection, e.report, month) for e in sealed}
    if args.json:
        print_json([{**_as_json(entry), "days": days[entry.report]} for entry in sealed])
    for entry in sealed if not args.json else ():
        newest = entry.newest
        line = f"{entry.report} {entry.month}: sealed by {newest.who}, revision {newest.revision}"
        if (number := days[entry.report]) < month.last.day:
            line += f", {number} of {month.last.day} days: before them there are no results"
        if entry.candidates:
            candidates = f"candidates of {plural(len(entry.candidates), 'day')} published"
            line += f", {candidates}: {plural(entry.figures, 'figure')} changed"
        print_done(args, line)
    for entry in unchanged:
        logger.warning(
            "%s %s: no figure would change, so it stays sealed %s",
            *(entry.report, entry.month, entry.newest),
        )
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
            "reason": entry.newest.reason,
            "candidate days": len(entry.candidates),
            "figures changed": entry.figures,
            "because": ", ".join(entry.reasons),
        }
        for entry in sealed
    ]
    return print_list(args, list(map(_as_json, sealed)), rows, "no sealed months")


def run_show(args: argparse.Namespace) -> int:
    """Print the revisions of a month and the effect of its candidates, or that of one revision.

    Raises:
        ReportUsage: the month is not sealed, or has no such revision.
    """
    month = month_of(args.month)
    documents = []
    with reading_at_once(open_database(args, READER)) as connection:
        for index, entry in enumerate(sealed_reports(connection, args.report, month)):
            newest = entry.newest.revision
            number = args.revision or newest + 1
            if args.revision is not None:
                require_revisions(entry, args.revision)
            moved = []
            if number > 1:
                moved = moved_figures(connection, entry.report, month, number - 1, number)
            documents.append({**_as_json(entry), "moved": moved_json(moved)})
            if args.json:
                continue
            print_lines(*[""] * bool(index), f"{entry.report} {entry.month}")
            for revision in entry.revisions:
                if args.revision in (None, revision.revision):
                    print_lines(f"  sealed {revision}")
            for run in entry.candidates if args.revision is None else ():
                figures = f"{plural(run.figures, 'figure')} would change"
                print_lines(f"  candidate {run.day}: {figures} ({', '.join(run.reasons)})")
            print_lines(*moved_lines(moved, is_sealed=number <= newest))
    if args.json:
        print_json(documents)
    return OK


def run_compare(args: argparse.Namespace) -> int:
    """Print the figures that moved between two revisions.

    Raises:
        ReportUsage: the month is not sealed or has no such revisions, or the first is not older.
    """
    month, (before, after) = month_of(args.month), (args.before, args.after)
    if before >= after:
        raise ReportUsage(f"revision {before} is not older than revision {after}")
    documents = []
    with reading_at_once(open_database(args, READER)) as connection:
        for index, entry in enumerate(sealed_reports(connection, args.report, month)):
            require_revisions(entry, before, after)
            moved = moved_figures(connection, entry.report, month, before, after)
            key = {"report": entry.report, "month": entry.month}
            documents.append({**key, "before": before, "after": after, "moved": moved_json(moved)})
            if not args.json:
                print_lines(*[""] * bool(index), f"{entry.report} {entry.month}")
                chosen = [r for r in entry.revisions if r.revision in (before, after)]
                print_lines(*(f"  sealed {revision}" for revision in chosen))
                print_lines(*moved_lines(moved))
    if args.json:
        print_json(documents)
    return OK


def _dry_run(args: argparse.Namespace, month: Period) -> int:
    """Print what to look at before the month is sealed, and what that would change."""
    documents: list[dict[str, object]] = []
    with reading_at_once(open_database(args, READER)) as connection:
        reports = complete_reports(connection, args.report, month)
        known = {entry.report: entry for entry in seals(connection, args.report, month)}
        for name in reports:
            revision, days, figures = 1, 0, 0
            moved = []
            if sealed := known.get(name):
                revision = sealed.newest.revision + 1
                days, figures = len(sealed.candidates), sealed.figures
                moved = moved_figures(connection, name, month, revision - 1, revision)
            points = checklist(connection, name, month)
            documents.append(
                {
                    "report": name,
                    "month": f"{month.first:%Y-%m}",
                    "revision": revision,
                    "candidate_days": days,
                    "figures_changed": figures,
                    "moved": moved_json(moved),
                    "checklist": points,
                }
            )
            if not args.json:
                line = f"{name} {month.first:%Y-%m}: would be revision {revision}"
                if sealed:
                    line += f", {plural(figures, 'figure')} of {plural(days, 'day')} would change"
                print_lines(line, *(moved_lines(moved, is_sealed=False) if sealed else ()))
                print_lines("look at these before you seal it:" if points else "nothing to look at")
                print_lines(*(f"  {point}" for point in points))
    if args.json:
        print_json(documents)
    return OK


def _as_json(entry: Seal) -> dict[str, object]:
    return {
        "report": entry.report,
        "month": entry.month,
        "revision": entry.newest.revision,
        "who": entry.newest.who,
        "reason": entry.newest.reason,
        "sealed_at": entry.newest.sealed_at,
        "revisions": [vars(revision) for revision in entry.revisions],
        "candidates": [
            {"day": run.day, "figures_changed": run.figures, "reasons": run.reasons}
            for run in entry.candidates
        ],
    }
