"""`sam-db import osg`: make topology and downtimes match the topology of OSG."""

from __future__ import annotations

import argparse

from sam_pipeline.sql.commands.imports.feed_command import add_options as add_feed_options
from sam_pipeline.sql.commands.imports.file_options import add_file_options
from sam_pipeline.sql.topology.view_rows import OSG

EXAMPLES = """\
examples:
  sam-db import osg --url https://topology.opensciencegrid.org
  sam-db import osg --endpoints rgsummary.xml --downtimes rgdowntime.xml --dry-run
  sam-db import osg --downtimes topology/*/*/*_downtime.yaml --window 2026-11-01..2026-11-30

The files are rgsummary/xml and rgdowntime/xml of the server, or files of the repository: beside
GROUP_downtime.yaml must be GROUP.yaml, which says the hosts of its resources. Rows of earlier
imports from OSG that are missing are closed, downtimes only within --window.
"""
FILES = {
    "endpoints": "rgsummary/xml: the services, facilities and administrators of resource groups",
    "downtimes": "rgdowntime/xml, or GROUP_downtime.yaml",
}


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    add_file_options(command, OSG, FILES, "FILE")
    add_feed_options(command, "fetch both from this server")
