"""`sam-report`: what a person types."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from sam_pipeline.schema.program.command import OK, CommandParser, common_options, run, to_json
from sam_pipeline.spark_jobs.commands import export as export_command
from sam_pipeline.spark_jobs.commands import profile as profile_command
from sam_pipeline.spark_jobs.commands import show
from sam_pipeline.spark_jobs.commands import trends as trends_command
from sam_pipeline.spark_jobs.commands.arguments import (
    add_due_option,
    add_period_options,
    asked_or_due,
    asked_period,
    utc_today,
)
from sam_pipeline.spark_jobs.commands.exclusion import add_exclusion
from sam_pipeline.spark_jobs.commands.explain import add_explain
from sam_pipeline.spark_jobs.commands.now import add_now
from sam_pipeline.spark_jobs.commands.seal import add_seal
from sam_pipeline.spark_jobs.config import load_report
from sam_pipeline.spark_jobs.errors import ReportUsage, SparkMissing
from sam_pipeline.spark_jobs.exports.spreadsheet import csv_table
from sam_pipeline.spark_jobs.inputs.observed import never_seen
from sam_pipeline.spark_jobs.profiles.file import read_profiles
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.levels import NAMES, SITE
from sam_pipeline.spark_jobs.runs.due import Task, asked_tasks, due_tasks
from sam_pipeline.spark_jobs.runs.lock import run_lock
from sam_pipeline.spark_jobs.runs.seal import waiting
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.loading.fold import take_changes

PROGRAM = "sam-report"
EXAMPLES = """\
examples:
  sam-report profile check critical.toml
  sam-report run --profile critical.toml --from 2026-11-01 --to 2026-11-07
  sam-report show --month 2026-11
  sam-report now --site SITE-A
  sam-report explain --day 2026-11-07 --site SITE-A --flavour CE
  sam-report site --from 2026-11-01 --to 2026-11-07 --out report/
  sam-report exclusion add --group SITE-A --start 2026-11-07T08:00Z --end 2026-11-07T12:00Z \\
      --reason "agreed with the site"
  sam-report seal --month 2026-10 --who "Jane Doe"
"""
RUN_EXAMPLES = """\
examples:
  sam-report run --profile critical.toml --day 2026-11-07
  sam-report run --month 2026-11                    the profiles of [report] in sam.toml
  sam-report run --due                              nightly: what is new, late or changed
  sam-report run --day 2026-11-07 --master local[8] --conf spark.driver.memory=8g

All days of a period are published together; a day that is still open counts until now.
"""
SHOW_EXAMPLES = """\
examples:
  sam-report show --day 2026-11-07
  sam-report show --level endpoint --from 2026-11-01 --to 2026-11-07 --format csv
  sam-report show --level group --month 2026-11 --report critical

Of several days the seconds are added up, then divided. Groups: the mean of their sites.
unknown: percent of the time nobody knows about; missing: the part of it without any result.
"""
SITE_EXAMPLES = """\
examples:
  sam-report site --from 2026-11-01 --to 2026-11-07 --out report/     then open report/index.html
"""

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    return run(PROGRAM, make_parser(), argv, lambda args: int(args.handler(args)))


def make_parser() -> CommandParser:
    common = common_options()
    parser = CommandParser(
        prog=PROGRAM,
        parents=[common],
        description="Availability and reliability, from metric results.",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "--version", action="version", version=f"{PROGRAM} {version('sam-pipeline')}"
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in (
        _add_run,
        _add_show,
        add_now,
        add_explain,
        _add_site,
        profile_command.add,
        add_exclusion,
        add_seal,
        export_command.add,
        trends_command.add,
    ):
        add(commands, common)
    return parser


def _add_run(commands: Any, common: argparse.ArgumentParser) -> None:
    command = commands.add_parser(
        "run",
        parents=[common],
        help="compute reports with Spark and store them",
        epilog=RUN_EXAMPLES,
    )
    command.add_argument(
        "--profile",
        type=Path,
        nargs="+",
        action="extend",
        metavar="FILE",
        help="default: [report] profiles",
    )
    add_period_options(command)
    add_due_option(command)
    command.add_argument(
        "--force", action="store_true", help="compute days, too, whose results were pruned"
    )
    command.add_argument("--master", default="local[*]", help="of Spark (default: %(default)s)")
    command.add_argument(
        "--conf", action="append", default=[], metavar="K=V", help="a setting of Spark; repeatable"
    )
    command.set_defaults(handler=_run)


def _add_show(commands: Any, common: argparse.ArgumentParser) -> None:
    command = commands.add_parser(
        "show", parents=[common], help="print stored figures", epilog=SHOW_EXAMPLES
    )
    command.add_argument("--level", choices=list(NAMES), default=SITE)
    add_period_options(command)
    command.add_argument("--format", choices=["table", "csv", "json"])
    _add_report(command)
    command.set_defaults(handler=_show)


def _add_site(commands: Any, common: argparse.ArgumentParser) -> None:
    command = commands.add_parser(
        "site", parents=[common], help="write an offline HTML site", epilog=SITE_EXAMPLES
    )
    add_period_options(command)
    command.add_argument("--out", type=Path, required=True, metavar="DIR")
    _add_report(command)
    command.set_defaults(handler=_site)


def _add_report(command: argparse.ArgumentParser) -> None:
    command.add_argument("--report", metavar="NAME", help="default: all reports")


def _run(args: argparse.Namespace) -> int:
    paths = load_report(args).profiles
    if not paths:
        raise ReportUsage("which report? --profile FILE, or profiles in [report] of sam.toml")
    profiles, today = read_profiles(paths), utc_today()
    asked, engine = asked_or_due(args, today), open_database(args)
    with run_lock(engine, [profile.name for profile in profiles], logger.warning):
        return _run_alone(args, profiles, asked, today, engine)


def _run_alone(
    args: argparse.Namespace,
    profiles: Sequence[Profile],
    asked: Period | None,
    today: date,
    engine: Engine,
) -> int:
    """Compute what was asked for, or what is due now that no other run is under way."""
    with writing(engine) as connection:  # before anything is read
        change_no = take_changes(connection)
    with reading(engine) as connection:
        if asked is None:
            tasks = due_tasks(connection, profiles, today)
        else:
            tasks = asked_tasks(connection, profiles, asked, force=args.force)
        for name, profile in {task.profile.name: task.profile for task in tasks}.items():
            if unseen := never_seen(connection, profile):
                logger.warning("%s: never seen, so MISSING: %s", name, ", ".join(unseen))
    _tell_idle(args, profiles, tasks)
    if not tasks:
        return OK
    try:
        from sam_pipeline.spark_jobs.compute.reports import run_reports  # Spark is slow to import
    except ModuleNotFoundError as error:
        words = f"Spark is missing ({error.name}): pip install 'sam-pipeline[reports]'"
        raise SparkMissing(words) from error
    return run_reports(args, tasks, change_no, engine)


def _tell_idle(
    args: argparse.Namespace, profiles: Sequence[Profile], tasks: Sequence[Task]
) -> None:
    """Say which reports have nothing to compute."""
    busy = {task.profile.name for task in tasks}
    if not args.json:
        for profile in profiles:
            if profile.name not in busy:
                print(f"{profile.name}: nothing is due")
    elif not tasks:
        print(to_json([]))


def _show(args: argparse.Namespace) -> int:
    period = _period(args)
    with reading(open_database(args)) as connection:
        shown = show.read_shown(connection, args.report, args.level, period)
        for words in waiting(connection, args.report, period):
            logger.warning(words)
    _warn_if_empty(bool(shown), period)
    style = args.format or ("json" if args.json else "table")
    if style != "table":  # which says it below the figures
        for each in shown:
            if each.days_missing:
                logger.warning("%s: not computed: %s", each.report, ", ".join(each.days_missing))
    if style == "json":
        print(to_json(show.as_rows(shown)))
    elif shown:
        print(csv_table(show.as_rows(shown)) if style == "csv" else show.as_text(shown))
    return OK


def _site(args: argparse.Namespace) -> int:
    from sam_pipeline.spark_jobs.pages.site_tree import write_site

    period = _period(args)
    with reading(open_database(args)) as connection:
        written = write_site(connection, args.report, period, args.out)
    index = args.out / "index.html"
    print(to_json({"index": str(index), "pages": written}) if args.json else index)
    return OK


def _period(args: argparse.Namespace) -> Period:
    return asked_period(args, utc_today())


def _warn_if_empty(found: bool, period: Period) -> None:
    if not found:
        logger.warning("nothing is published for %s: `sam-report run` computes it", period)
