"""`sam-report export`: what a person types."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sam_pipeline.spark_jobs.commands.arguments import add_period_options

EXAMPLES = """\
examples:
  sam-report export --format parquet --month 2026-11 --out export/
  sam-report export --format csv --day 2026-11-14 --out export/ --report critical
  sam-report export --format openmetrics --from 2026-11-01 --to 2026-11-14 --out export/

what is written below DIR (a file is replaced at once: nobody reads half of one):
  parquet      VIEW/report=NAME/day=2026-11-14/part-0.parquet: the views endpoint_, service_,
               function_, site_, group_availability, status_timeline and status_trend
  csv, json    NAME/2026-11-14/VIEW.csv: the same tables, a file per day and view
  argo         NAME/2026-11-14/results-sites.json and so on: what ARGO's web API answers about A/R
               (groups, sites, services, endpoints) and status (sites, services, endpoints,
               metrics); of months that the period covers NAME/2026-11/results-sites.json too
  openmetrics  NAME/openmetrics-2026-11-01-to-2026-11-14.txt: sam_status_seconds by report, site
               and status, a sample a day; sum_over_time() gives what `sam-report show` tells

Rows of a day that is still open tell in `until` how far they go.
"""

FORMATS = ("parquet", "csv", "json", "argo", "openmetrics")


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """The command and its options."""
    command = commands.add_parser(
        "export",
        parents=[common],
        help="write stored figures and timelines as files for other programs",
        epilog=EXAMPLES,
    )
    command.add_argument("--format", choices=FORMATS, required=True)
    add_period_options(command)
    command.add_argument("--out", type=Path, required=True, metavar="DIR")
    command.add_argument("--report", metavar="NAME", help="default: all reports")
    command.set_defaults(handler=_export)


def _export(args: argparse.Namespace) -> int:
    from sam_pipeline.spark_jobs.commands.export_run import export_reports  # pyarrow takes a while

    return export_reports(args)
