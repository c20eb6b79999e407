"""`sam-db import cric`: make the topology match CRIC."""

from __future__ import annotations

import argparse
from pathlib import Path

from sam_pipeline.sql.commands.imports.feed_command import add_options as add_feed_options
from sam_pipeline.sql.commands.imports.feed_command import run_feed
from sam_pipeline.sql.topology.view_rows import CRIC

EXAMPLES = """\
examples:
  sam-db import cric --url https://wlcg-cric.cern.ch
  sam-db import cric --endpoints services.json --groups federations.json --dry-run

The files are responses of CRIC, in JSON, to api/core/service/query/ and
api/core/federation/query/. Rows of earlier imports from CRIC that are missing are closed.
"""
FILES = {"endpoints": "the services", "groups": "the federations of sites"}


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    for name, summary in FILES.items():
        command.add_argument(f"--{name}", type=Path, metavar="JSON", help=summary)
    add_feed_options(command, "fetch both from this server")
    command.set_defaults(handler=run_cric, usage_error=command.error)


def run_cric(args: argparse.Namespace) -> int:
    return run_feed(args, CRIC, {name: [path] for name in FILES if (path := getattr(args, name))})
