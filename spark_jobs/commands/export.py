"""`sam-report export`: stored figures and timelines as files for other programs."""

from __future__ import annotations

import argparse
import calendar
import logging
from datetime import date
from pathlib import Path

from sam_pipeline.schema.program.command import OK, print_done, print_json
from sam_pipeline.schema.program.moments import utc_today
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.spark_jobs.command_line import (
    add_published_options,
    published,
    requested_period,
    time_or_none,
)
from sam_pipeline.spark_jobs.exports.formats import WRITERS, ExportRequest, Written
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.runs.published import days_not_computed, published_runs

EXAMPLES = """\
examples:
  sam-report export --format parquet --month last-month --out export/
  sam-report export --format csv --day 2026-11-14 --out export/ --report critical
  sam-report export --format openmetrics --from 30d --to yesterday --out export/

files written below DIR (existing ones are replaced atomically):
  parquet      VIEW/report=NAME/day=2026-11-14/part-0.parquet: the views endpoint_, service_,
               function_, site_, group_availability, report_group_site (the members of groups),
               status_timeline and status_trend, and `target`, the targets of sites and groups
  csv, json    NAME/2026-11-14/VIEW.csv: the same tables, a file per day and view
  argo         NAME/2026-11-14/results-sites.json and so on: the answers of ARGO's web API about
               A/R (groups, sites, services, endpoints) and status (sites, services, endpoints,
               metrics); for whole months in the period, also NAME/2026-11/results-sites.json …
  openmetrics  NAME/openmetrics-2026-11-01-to-2026-11-14.txt: sam_status_seconds by report, site
               and status, one sample per day; sum_over_time() gives the seconds that
               `sam-report show` adds up

With --site, the files have the rows of that site only: choose a directory of their own.
The column `until` is the end of the data on a day that was still open, and empty otherwise.
"""

logger = logging.getLogger(__name__)


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.add_argument(
        "--format", choices=list(WRITERS), required=True, help="the file format, see below"
    )
    command.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="the output directory"
    )
    add_published_options(command)
    command.set_defaults(handler=run_export)


def run_export(args: argparse.Namespace) -> int:
    """Write the published days of each report as files, and print how many."""
    today = utc_today()
    period = requested_period(args, today)
    months = covered_months(period, today)
    progress = Progress()
    written: list[Written] = []
    try:
        with published(args, period, args.site) as (connection, reports):
            for report in reports:
                runs = published_runs(connection, report, period)
                if missing := days_not_computed(runs, period):
                    logger.warning("%s: not computed, so not exported: %s", report, missing)
                for run in runs if args.format == "openmetrics" else ():
                    if run.until is not None:
                        logger.warning(
                            "%s: %s ends at %s: Prometheus would keep its samples next to those"
                            " of the whole day, so load them when the day is over",
                            report,
                            run.day,
                            time_or_none(run.until),
                        )
                request = ExportRequest(
                    connection, report, period, runs, months, args.out, args.site
                )
                written += WRITERS[args.format](request, progress.stage)
    finally:
        progress.end()
    if args.json:
        print_json([{**vars(file), "path": str(file.path)} for file in written])
        return OK
    for report in dict.fromkeys(file.report for file in written):
        rows = [file.rows for file in written if file.report == report]
        counts = f"{plural(len(rows), 'file')} with {plural(sum(rows), 'row')}"
        print_done(args, f"{report}: {counts} below {args.out}")
    return OK


def covered_months(period: Period, today: date) -> list[Period]:
    """The months of which the period has every day, up to today for the current month."""

    def is_whole(part: Period) -> bool:
        last = calendar.monthrange(part.first.year, part.first.month)[1]
        return part.first.day == 1 and (part.last.day == last or part.last == today)

    return list(filter(is_whole, period.months()))
