"""`sam-report exclusion`: add, list and remove exclusions (availability rule 7)."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence
from datetime import date

from sqlalchemy import Connection

from sam_pipeline.schema.program.command import (
    OK,
    add_action,
    print_done,
    print_json,
    text_argument,
    whole_number,
)
from sam_pipeline.schema.program.moments import moment_argument
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.command_line import print_list
from sam_pipeline.spark_jobs.config import load_report
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Exclusion, announcement_json
from sam_pipeline.spark_jobs.profiles.file import read_profiles
from sam_pipeline.spark_jobs.rules.days import day_start, in_ranges, moment
from sam_pipeline.spark_jobs.rules.levels import METRIC, SITE
from sam_pipeline.spark_jobs.runs import exclusions
from sam_pipeline.spark_jobs.runs.due import horizon
from sam_pipeline.spark_jobs.runs.exclusions import days_made_due, effect
from sam_pipeline.spark_jobs.runs.published import published_profiles
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.database.operations import login_name
from sam_pipeline.sql.database.roles import READER, REPORTER

EXAMPLES = """\
examples:
  sam-report exclusion add --site SITE-A --start 2026-11-07T08:00Z --end 2026-11-07T12:00Z \\
      --reason "agreed with the site"
  sam-report exclusion list
  sam-report exclusion remove 3 --reason "the site had failed after all"
"""
ADD_EXAMPLES = """\
examples:
  sam-report exclusion add --monitoring-host nagios.example.org --start 2026-11-07T08:00Z \\
      --end 2026-11-07T11:30Z --reason "its network was down"
  sam-report exclusion add --metric org.sam.CE-JobSubmit --site SITE-A --flavour CE \\
      --start yesterday --end today --reason "the probe was wrong"
  sam-report exclusion add --site SITE-A --start 2026-11-07T08:00+01:00 \\
      --end 2026-11-07T12:00+01:00 --reason "agreed with the site"

Results that an excluded monitoring host measured from --start to --end (both included) do not
count. An excluded metric is EXCLUDED, and an excluded site UNKNOWN, from --start to just before
--end. `add` prints the id, how many stored results that affects, and the days that are due: the
next `sam-report run --due` recomputes them. A name that no result or endpoint has is excluded all
the same, with a warning.
"""

logger = logging.getLogger(__name__)


def add_options(group: argparse.ArgumentParser) -> None:
    group.epilog = EXAMPLES
    actions = group.add_subparsers()
    command = add_action(
        actions, "add", run_add, "add an exclusion, and print its id", ADD_EXAMPLES
    )
    for option, metavar, text in (
        ("--monitoring-host", "H", "exclude the results that it measured"),
        ("--metric", "M", "exclude a metric, everywhere or as below"),
        ("--site", "S", "exclude a whole site; with --metric: only at this site"),
        ("--flavour", "F", "with --metric: only for this flavour"),
        ("--host", "H", "with --metric: only for this host"),
    ):
        command.add_argument(option, type=text_argument, metavar=metavar, help=text)
    for name in ("start", "end"):
        command.add_argument(
            f"--{name}",
            required=True,
            type=moment_argument,
            metavar="TIME",
            help=f"the {name} of the exclusion, as in the examples",
        )
    _add_decision(command, "shown with the exclusion")
    command = add_action(actions, "list", run_list, "list the exclusions in force")
    command.add_argument(
        "--all", dest="everything", action="store_true", help="include removed exclusions"
    )
    command = add_action(actions, "remove", run_remove, "remove an exclusion; its history stays")
    command.add_argument(
        "exclusion_id", metavar="ID", type=whole_number(1, 999_999_999), help="as listed by `list`"
    )
    _add_decision(command, "why; recorded with the exclusion")


def _add_decision(command: argparse.ArgumentParser, reason: str) -> None:
    command.add_argument("--reason", required=True, type=text_argument, metavar="TEXT", help=reason)
    command.add_argument(
        "--who",
        type=text_argument,
        metavar="NAME",
        help="who decided it (default: your login name)",
    )


def run_add(args: argparse.Namespace) -> int:
    """Add an exclusion, and print its id.

    Raises:
        ReportUsage: nothing is named to exclude, options do not go together, or it ends too early.
    """
    kinds = {MONITORING_HOST: args.monitoring_host, METRIC: args.metric, SITE: args.site}
    kind = next((kind for kind, value in kinds.items() if value is not None), None)
    if kind is None:
        raise ReportUsage("expected one of --monitoring-host H, --metric M, --site S")
    others = {MONITORING_HOST: ("metric", "site", "flavour", "host"), SITE: ("flavour", "host")}
    given = [f"--{name}" for name in others.get(kind, ()) if getattr(args, name) is not None]
    if given:
        only = "not with --monitoring-host" if kind == MONITORING_HOST else "only with --metric"
        raise ReportUsage(f"{', '.join(given)}: {only}")
    if args.end <= args.start:
        end, start = format_time(args.end), format_time(args.start)
        raise ReportUsage(f"--end {end} is not after --start {start}")
    exclusion = Exclusion(
        exclusion_id=0,
        kind=kind,
        monitoring_host=args.monitoring_host or "",
        metric_name=args.metric or "",
        site=args.site or "",
        service_flavour=args.flavour or "",
        # The database stores host names like this.
        host_name=(args.host or "").rstrip(".").lower(),
        start=int(args.start.timestamp()),
        end=int(args.end.timestamp()),
        reason=args.reason,
        who=args.who or login_name(),
    )
    engine, configured = open_database(args, REPORTER), read_profiles(load_report(args).profiles)
    with reading(engine) as connection:
        profiles = [*configured, *published_profiles(connection)]
        affected = effect(connection, exclusion, profiles)
    if affected.unknown:
        logger.warning("%s; excluded anyway", affected.unknown)
    with writing(engine) as connection:
        exclusion_id = exclusions.add(connection, exclusion, int(time.time()))
        due = _days_made_due(connection, exclusion)
    if not args.json:
        print_done(args, exclusion_id, f"affects {plural(affected.results, 'result')}")
    return _print_due(
        args, due, {"exclusion_id": exclusion_id, "results": affected.results, "due_days": due}
    )


def run_list(args: argparse.Namespace) -> int:
    """Print the exclusions, as a table or as JSON."""
    with reading(open_database(args, READER)) as connection:
        entries = exclusions.entries(connection)
    documents, rows = [], []
    for entry in entries:
        if entry.removed_at is not None and not args.everything:
            continue
        exclusion, history = entry.exclusion, dict(vars(entry))
        documents.append({**announcement_json(history.pop("exclusion")), **history})
        selectors = (
            exclusion.monitoring_host,
            exclusion.metric_name,
            exclusion.site,
            exclusion.service_flavour,
            exclusion.host_name,
        )
        row = {
            "id": exclusion.exclusion_id,
            "what": " ".join([exclusion.kind, *filter(None, selectors)]),
            "start": format_time(moment(exclusion.start)),
            "end": format_time(moment(exclusion.end)),
            "reason": exclusion.reason.replace("\n", " "),
            "who": exclusion.who,
            "added at": format_time(entry.added_at),
        }
        if args.everything:
            row |= {
                "removed at": entry.removed_at and format_time(entry.removed_at),
                "by": entry.removed_by,
                "because": (entry.removed_because or "").replace("\n", " "),
            }
        rows.append(row)
    return print_list(args, documents, rows, "no exclusions")


def run_remove(args: argparse.Namespace) -> int:
    """Remove an exclusion."""
    by = args.who or login_name()
    with writing(open_database(args, REPORTER)) as connection:
        now = int(time.time())
        removed = exclusions.remove(connection, args.exclusion_id, by, args.reason, now)
        due = _days_made_due(connection, removed)
    return _print_due(args, due, {"exclusion_id": args.exclusion_id, "due_days": due})


def _print_due(args: argparse.Namespace, days: Sequence[date], document: object) -> int:
    if args.json:
        print_json(document)
    elif days:
        print_done(args, f"due: {in_ranges(days)}")
    return OK


def _days_made_due(connection: Connection, exclusion: Exclusion) -> list[date]:
    """The days that an added or removed exclusion makes due, with a warning of those it can't."""
    first_kept = horizon(connection)
    if first_kept is not None and exclusion.start < day_start(first_kept):
        logger.warning(
            "figures of days before %s do not change: their results were pruned", first_kept
        )
    return days_made_due(connection, exclusion)
