"""`sam-db import cric`: make topology and downtimes match CRIC."""

from __future__ import annotations

import argparse

from sam_pipeline.sql.commands.imports.feed_command import add_options as add_feed_options
from sam_pipeline.sql.commands.imports.file_options import add_file_options
from sam_pipeline.sql.topology.view_rows import CRIC

EXAMPLES = """\
examples:
  sam-db import cric --url https://wlcg-cric.cern.ch
  sam-db import cric --endpoints services.json --groups federations.json --dry-run
  sam-db import cric --downtimes downtimes.json --window 2026-11-01..2026-11-30

The files are responses of CRIC, in JSON, to queries below api/core. Rows of earlier imports from
CRIC that are missing are closed, downtimes only within --window. With --url, downtimes are fetched
with a client certificate only, as CRIC shows them to nobody else.
"""
FILES = {
    "endpoints": "from service/query: the services",
    "groups": "from federation/query: the federations of sites",
    "downtimes": "from downtime/query",
}


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    add_file_options(command, CRIC, FILES, "JSON")
    add_feed_options(command, "fetch everything from this server")
