"""`sam-db import argo`: make topology and downtimes match tables of argo-connectors."""

from __future__ import annotations

import argparse

from sam_pipeline.sql.commands.imports.feed_command import add_options as add_feed_options
from sam_pipeline.sql.commands.imports.file_options import add_file_options, add_time_format
from sam_pipeline.sql.topology.view_rows import ARGO

EXAMPLES = """\
examples:
  sam-db import argo --endpoints topology.csv --dry-run
  sam-db import argo --downtimes downtimes.csv --time-format "%m/%d/%Y %H:%M"

The files are tables in CSV with the columns that argo-connectors knows. Rows of earlier imports of
such tables that are missing are closed, downtimes only within --window. Times are in UTC.
"""
FILES = {
    "endpoints": "a table of services: SITENAME-SERVICEGROUP, SERVICE_TYPE, URL …",
    "downtimes": "a table of downtimes: unique_id, url, start_time, end_time, service_type …",
}


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    add_file_options(command, ARGO, FILES, "CSV", ["time_format"])
    add_time_format(command)
    add_feed_options(command)
