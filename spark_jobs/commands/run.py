"""`sam-report run`: compute reports with Spark and store them."""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path

from sqlalchemy import Connection

from sam_pipeline.schema.program.command import OK, print_done, print_json
from sam_pipeline.schema.program.moments import utc_today
from sam_pipeline.spark_jobs.command_line import (
    add_period_options,
    add_spark_options,
    requested_or_due,
)
from sam_pipeline.spark_jobs.config import DATABASE, SOURCES, load_report
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.inputs.announced import downtimes, memberships
from sam_pipeline.spark_jobs.inputs.archive.days import ArchivedDays
from sam_pipeline.spark_jobs.inputs.observed import never_seen
from sam_pipeline.spark_jobs.profiles.file import read_profiles
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.runs.due import only_changed, requested_reports
from sam_pipeline.spark_jobs.runs.origin import ResultOrigin
from sam_pipeline.spark_jobs.runs.record import run_lock
from sam_pipeline.sql.archive.config import load_archive
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.database.operations import record_operation
from sam_pipeline.sql.database.roles import REPORTER
from sam_pipeline.sql.loading.fold import take_changes
from sam_pipeline.sql.topology.downtime import without_endpoints

EXAMPLES = """\
examples:
  sam-report run --profile critical.toml --day 2026-11-07
  sam-report run --month 2026-11                    with the profiles in [report] of sam.toml
  sam-report run --due                              nightly: new, late or changed days
  sam-report run --month 2026-10 --source archive   from the files of the archive alone
  sam-report run --day 2026-11-07 --master local[8] --conf spark.driver.memory=8g

All days of a period are published together. An open day is computed up to now.
"""

logger = logging.getLogger(__name__)


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.add_argument(
        "--profile",
        type=Path,
        nargs="+",
        action="extend",
        metavar="FILE",
        help="profiles of the reports (default: those in [report] of sam.toml)",
    )
    add_period_options(command)
    command.add_argument(
        "--due",
        action="store_true",
        help="instead of a period: every closed day since the first result that was never"
        " computed, or of which the report would read something else now",
    )
    command.add_argument(
        "--force", action="store_true", help="also compute days whose results were pruned"
    )
    command.add_argument(
        "--source",
        choices=SOURCES,
        help="where closed days are read from (default: source in [report] of sam.toml)",
    )
    add_spark_options(command)
    command.set_defaults(handler=run_report)


def run_report(args: argparse.Namespace) -> int:
    """Compute the requested or due days of every profile, and publish them."""
    config = load_report(args)
    if not config.profiles:
        raise ReportUsage("no profile: use --profile FILE, or set profiles in [report] of sam.toml")
    profiles, today = read_profiles(config.profiles), utc_today()
    store = None if config.source == DATABASE else load_archive(args).open()
    origin = ResultOrigin(config.source, store)
    requested, engine = requested_or_due(args, today), open_database(args, REPORTER)
    # Due days are looked up under the lock, as another run may be computing them.
    with run_lock(engine, [profile.name for profile in profiles], logger.warning):
        with writing(engine) as connection:  # before anything is read
            change_no = take_changes(connection)
        with reading(engine) as connection:
            if requested is not None:
                look_back = max(profile.look_back for profile in profiles)
                archived = origin.archived_days(connection, requested, look_back)
                tasks = requested_reports(
                    connection, profiles, requested, force=args.force, archived=archived
                )
            else:
                tasks = origin.due(connection, profiles, today)
                if tasks and origin.has_database:
                    with writing(engine) as own:
                        tasks = only_changed(own, tasks, change_no, int(time.time()))
            if origin.has_database:
                for name, profile in {task.profile.name: task.profile for task in tasks}.items():
                    if unseen := never_seen(connection, profile):
                        logger.warning("%s: never seen, so MISSING: %s", name, ", ".join(unseen))
                for period in dict.fromkeys(task.period for task in tasks):
                    if unmatched := _without_endpoints(connection, period):
                        logger.warning("%s: %s", period, unmatched)
        if requested is not None:
            names = ", ".join(profile.name for profile in profiles)
            arguments = {
                "reports": names,
                "days": str(requested),
                "force": str(args.force),
                "source": config.source,
            }
            with writing(engine) as connection:
                record_operation(connection, "run", arguments)
        due = {task.profile.name for task in tasks}
        for profile in () if args.json else profiles:
            if profile.name not in due:
                print_done(args, f"{profile.name}: nothing is due")
        if not tasks:
            if args.json:
                print_json([])
            return OK
        from sam_pipeline.spark_jobs.compute.reports import run_reports  # slow to import

        def archived_of(period: Period, look_back: int) -> ArchivedDays:
            with reading(engine) as connection:
                return origin.archived_days(connection, period, look_back)

        return run_reports(args, engine, config.start_timeout_s, tasks, change_no, archived_of)


def _without_endpoints(connection: Connection, period: Period) -> str:
    """A warning about downtimes of the period that apply to no endpoint; "" if all apply."""
    return without_endpoints(
        (
            {
                "siteName": downtime.site,
                "hostName": downtime.host_name,
                "serviceFlavour": downtime.service_flavour,
                "downtimeId": downtime.downtime_id,
            }
            for downtime in downtimes(connection, period)
        ),
        (
            {
                "siteName": endpoint.site,
                "gridSite": endpoint.grid_site or "",
                "hostName": endpoint.host_name,
                "serviceFlavour": endpoint.service_flavour,
            }
            for endpoint in memberships(connection, period)
        ),
    )
