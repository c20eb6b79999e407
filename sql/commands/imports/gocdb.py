"""`sam-db import gocdb`: make topology and downtimes match GOCDB."""

from __future__ import annotations

import argparse

from sam_pipeline.sql.commands.imports.feed_command import add_options as add_feed_options
from sam_pipeline.sql.commands.imports.file_options import add_file_options
from sam_pipeline.sql.topology.view_rows import GOCDB

EXAMPLES = """\
examples:
  sam-db import gocdb --url https://goc.egi.eu/gocdbpi
  sam-db import gocdb --url "https://goc.egi.eu/gocdbpi?scope=EGI" --dry-run
  sam-db import gocdb --endpoints endpoints.xml --groups sites.xml
  sam-db import gocdb --endpoints page1.xml page2.xml --dry-run
  sam-db import gocdb --downtimes downtimes.xml --window 2026-11-01..2026-11-30

With --url, everything is fetched as `[[import.feed]]` of sam.toml describes it. Files are responses
of GOCDB to get_service_endpoint, to get_site or get_site_list, and to get_downtime or
get_downtime_nested_services. The files of one option form a snapshot: rows of earlier imports that
are missing from it are closed, downtimes only within --window.
"""
FILES = {
    "endpoints": "from get_service_endpoint",
    "groups": "from get_site or get_site_list: the NGIs of sites, and their scope tags",
    "downtimes": "from get_downtime or get_downtime_nested_services",
}


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    add_file_options(command, GOCDB, FILES, "XML")
    add_feed_options(command, "fetch everything from the GOCDB whose URL ends in /gocdbpi")
