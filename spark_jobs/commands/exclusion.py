"""`sam-report exclusion`: add, list and remove exclusions (availability rule 7)."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence
from datetime import date

from sqlalchemy import Connection

from sam_pipeline.schema.login import login_name
from sam_pipeline.schema.program.command import (
    OK,
    print_done,
    print_json,
    print_lines,
    text_argument,
    text_table,
    whole_number,
)
from sam_pipeline.schema.program.moments import time_argument
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.times import format_time, parse_time
from sam_pipeline.spark_jobs.command_line.arguments import add_action
from sam_pipeline.spark_jobs.config import load_report
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Exclusion
from sam_pipeline.spark_jobs.profiles.file import read_profiles
from sam_pipeline.spark_jobs.rules.days import day_start, in_ranges, moment
from sam_pipeline.spark_jobs.rules.levels import GROUP, METRIC
from sam_pipeline.spark_jobs.runs import exclusions
from sam_pipeline.spark_jobs.runs.due import horizon
from sam_pipeline.spark_jobs.runs.exclusions import days_made_due, effect
from sam_pipeline.spark_jobs.runs.published import published_profiles
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.database.roles import READER, REPORTER

EXAMPLES = """\
examples:
  sam-report exclusion add --monitoring-host nagios.example.org --start 2026-11-07T08:00Z \\
      --end 2026-11-07T11:30Z --reason "its network was down"
  sam-report exclusion add --metric org.sam.CE-JobSubmit --site SITE-A --flavour CE \\
      --start 2026-11-07T00:00Z --end 2026-11-08T00:00Z --reason "the probe was wrong"
  sam-report exclusion add --group SITE-A --start 2026-11-07T08:00+01:00 \\
      --end 2026-11-07T12:00+01:00 --reason "agreed with the site"
  sam-report exclusion list
  sam-report exclusion remove 3 --reason "the site had failed after all"

Results that an excluded monitoring host measured from --start to --end (both included) do not
count. An excluded metric is EXCLUDED, and an excluded group (a site) UNKNOWN, from --start to just
before --end. `add` prints the id, how many stored results that affects, and the days that are due:
the next `sam-report run --due` recomputes them. A name that no result or endpoint has is excluded
all the same, with a warning.
"""
_COLUMNS = ("id", "what", "start", "end", "reason", "who", "added at")

logger = logging.getLogger(__name__)


def add_options(group: argparse.ArgumentParser) -> None:
    group.epilog = EXAMPLES
    actions = group.add_subparsers(metavar="ACTION", required=True)
    command = add_action(actions, "add", "add an exclusion, and print its id", EXAMPLES)
    kind = command.add_mutually_exclusive_group(required=True)
    kind.add_argument(
        "--monitoring-host", type=text_argument, metavar="H", help="exclude the results it measured"
    )
    kind.add_argument(
        "--metric", type=text_argument, metavar="M", help="exclude a metric, everywhere or as below"
    )
    kind.add_argument("--group", type=text_argument, metavar="SITE", help="exclude a whole site")
    for name, metavar in (("site", "S"), ("flavour", "F"), ("host", "H")):
        command.add_argument(
            f"--{name}",
            type=text_argument,
            metavar=metavar,
            help=f"with --metric: only for this {name}",
        )
    for name in ("start", "end"):
        command.add_argument(
            f"--{name}",
            required=True,
            type=time_argument,
            metavar="TIME",
            help=f"the {name} of the exclusion, as in the examples",
        )
    _add_decision(command, "shown with the exclusion")
    command.set_defaults(handler=run_add)
    command = add_action(actions, "list", "list the exclusions in force", EXAMPLES)
    command.add_argument(
        "--all", dest="everything", action="store_true", help="include removed exclusions"
    )
    command.set_defaults(handler=run_list)
    command = add_action(actions, "remove", "remove an exclusion; its history stays", EXAMPLES)
    command.add_argument(
        "exclusion_id", metavar="ID", type=whole_number(1, 999_999_999), help="as listed by `list`"
    )
    _add_decision(command, "why; recorded with the exclusion")
    command.set_defaults(handler=run_remove)


def _add_decision(command: argparse.ArgumentParser, reason: str) -> None:
    command.add_argument("--reason", required=True, type=text_argument, metavar="TEXT", help=reason)
    command.add_argument(
        "--who",
        type=text_argument,
        metavar="NAME",
        help="who decided it (default: your login name)",
    )


def run_add(args: argparse.Namespace) -> int:
    """Add an exclusion, and print its id."""
    selectors = [name for name in ("site", "flavour", "host") if getattr(args, name) is not None]
    if selectors and args.metric is None:
        options = ", ".join(f"--{name}" for name in selectors)
        raise ReportUsage(f"{options}: only with --metric, to exclude it at some endpoints")
    start, end = (int(parse_time(text).timestamp()) for text in (args.start, args.end))
    if end <= start:
        raise ReportUsage(f"--end {args.end} is not after --start {args.start}")
    kinds = {MONITORING_HOST: args.monitoring_host, METRIC: args.metric, GROUP: args.group}
    exclusion = Exclusion(
        exclusion_id=0,
        kind=next(kind for kind, value in kinds.items() if value is not None),
        monitoring_host=args.monitoring_host or "",
        metric_name=args.metric or "",
        site=args.group or args.site or "",
        service_flavour=args.flavour or "",
        # The database stores host names like this.
        host_name=(args.host or "").rstrip(".").lower(),
        start=start,
        end=end,
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
        due = days_made_due(connection, exclusion)
        _warn_of_frozen_days(connection, exclusion)
    if args.json:
        document = {"exclusion_id": exclusion_id, "results": affected.results, "due_days": due}
        print_json(document)
    else:
        print_done(args, exclusion_id, f"affects {plural(affected.results, 'result')}")
        _print_due(args, due)
    return OK


def run_list(args: argparse.Namespace) -> int:
    """Print the exclusions, as a table or as JSON."""
    with reading(open_database(args, READER)) as connection:
        entries = exclusions.entries(connection)
    shown = [entry for entry in entries if args.everything or entry.removed_at is None]
    if args.json:
        from sam_pipeline.spark_jobs.explain.as_json import announcement_json  # slow to import

        documents = []
        for entry in shown:
            history = dict(vars(entry))
            documents.append({**announcement_json(history.pop("exclusion")), **history})
        print_json(documents)
    elif shown:
        columns = [*_COLUMNS, *(["removed at", "by", "because"] if args.everything else [])]
        rows = []
        for entry in shown:
            exclusion = entry.exclusion
            selectors = (
                exclusion.monitoring_host,
                exclusion.metric_name,
                exclusion.site,
                exclusion.service_flavour,
                exclusion.host_name,
            )
            row = [
                exclusion.exclusion_id,
                " ".join([exclusion.kind, *filter(None, selectors)]),
                format_time(moment(exclusion.start)),
                format_time(moment(exclusion.end)),
                exclusion.reason.replace("\n", " "),
                exclusion.who,
                format_time(entry.added_at),
                None if entry.removed_at is None else format_time(entry.removed_at),
                entry.removed_by,
                (entry.removed_because or "").replace("\n", " "),
            ]
            rows.append(row[: len(columns)])
        print_lines(*text_table(columns, rows))
    return OK


def run_remove(args: argparse.Namespace) -> int:
    """Remove an exclusion."""
    by = args.who or login_name()
    with writing(open_database(args, REPORTER)) as connection:
        now = int(time.time())
        removed = exclusions.remove(connection, args.exclusion_id, by, args.reason, now)
        due = days_made_due(connection, removed)
        _warn_of_frozen_days(connection, removed)
    if args.json:
        print_json({"exclusion_id": args.exclusion_id, "due_days": due})
    else:
        _print_due(args, due)
    return OK


def _print_due(args: argparse.Namespace, days: Sequence[date]) -> None:
    if days:
        print_done(args, f"due: {in_ranges(days)}")


def _warn_of_frozen_days(connection: Connection, exclusion: Exclusion) -> None:
    first_kept = horizon(connection)
    if first_kept is not None and exclusion.start < day_start(first_kept):
        logger.warning(
            "figures of days before %s do not change: their results were pruned", first_kept
        )
