"""`sam-report run`: compute reports with Spark and store them."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

from sam_pipeline.schema.program.command import OK, to_json
from sam_pipeline.spark_jobs.commands.arguments import add_period_options, asked_or_due, utc_today
from sam_pipeline.spark_jobs.config import load_report
from sam_pipeline.spark_jobs.errors import ReportUsage, SparkMissing
from sam_pipeline.spark_jobs.inputs.observed import never_seen
from sam_pipeline.spark_jobs.profiles.file import read_profiles
from sam_pipeline.spark_jobs.runs.due import asked_reports, due_reports
from sam_pipeline.spark_jobs.runs.lock import run_lock
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.loading.fold import take_changes

EXAMPLES = """\
examples:
  sam-report run --profile critical.toml --day 2026-11-07
  sam-report run --month 2026-11                    the profiles of [report] in sam.toml
  sam-report run --due                              nightly: what is new, late or changed
  sam-report run --day 2026-11-07 --master local[8] --conf spark.driver.memory=8g

All days of a period are published together; a day that is still open counts until now.
"""

logger = logging.getLogger(__name__)


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    command = commands.add_parser(
        "run", parents=[common], help="compute reports with Spark and store them", epilog=EXAMPLES
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
    command.add_argument(
        "--due",
        action="store_true",
        help="instead of a period: every closed day since the first result that was never computed,"
        " or whose inputs changed since",
    )
    command.add_argument(
        "--force", action="store_true", help="also compute days whose results were pruned"
    )
    command.add_argument("--master", default="local[*]", help="of Spark (default: %(default)s)")
    command.add_argument(
        "--conf", action="append", default=[], metavar="K=V", help="a setting of Spark; repeatable"
    )
    command.set_defaults(handler=_run)


def _run(args: argparse.Namespace) -> int:
    paths = load_report(args).profiles
    if not paths:
        raise ReportUsage("which report? --profile FILE, or profiles in [report] of sam.toml")
    profiles, today = read_profiles(paths), utc_today()
    asked, engine = asked_or_due(args, today), open_database(args)
    # What is due is looked up when no other run is under way.
    with run_lock(engine, [profile.name for profile in profiles], logger.warning):
        with writing(engine) as connection:  # before anything is read
            change_no = take_changes(connection)
        with reading(engine) as connection:
            if asked is None:
                tasks = due_reports(connection, profiles, today)
            else:
                tasks = asked_reports(connection, profiles, asked, force=args.force)
            for name, profile in {task.profile.name: task.profile for task in tasks}.items():
                if unseen := never_seen(connection, profile):
                    logger.warning("%s: never seen, so MISSING: %s", name, ", ".join(unseen))
        due = {task.profile.name for task in tasks}
        for profile in () if args.json else profiles:
            if profile.name not in due:
                print(f"{profile.name}: nothing is due")
        if not tasks:
            if args.json:
                print(to_json([]))
            return OK
        try:
            # Spark is slow to import.
            from sam_pipeline.spark_jobs.compute.reports import run_reports
        except ModuleNotFoundError as error:
            message = f"Spark is missing ({error.name}): pip install 'sam-pipeline[reports]'"
            raise SparkMissing(message) from error
        return run_reports(args, tasks, change_no, engine)
