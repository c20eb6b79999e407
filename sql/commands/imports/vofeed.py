"""`sam-db import vofeed`: make the topology of a VO match its feed."""

from __future__ import annotations

import argparse
from pathlib import Path

from sam_pipeline.sql.commands.imports.feed_command import add_options as add_feed_options
from sam_pipeline.sql.commands.imports.feed_command import run_feed
from sam_pipeline.sql.topology.view_rows import VO_FEED

EXAMPLES = """\
examples:
  sam-db import vofeed --url https://vo.example.org/vofeed.xml
  sam-db import vofeed vofeed.xml --dry-run
  sam-db import vofeed vofeed.xml --site-group CMS_Site

The feed names its VO. Endpoints and groups of earlier feeds of this VO that are missing from it are
closed; those of other VOs and from other sources are not.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.add_argument("file", type=Path, nargs="?", metavar="XML", help="the feed as a file")
    add_feed_options(command, "fetch the feed from here")
    command.add_argument(
        "--site-group",
        default="",
        metavar="TYPE",
        help="the groups of this type are the sites (default: the grid sites are)",
    )
    command.set_defaults(handler=run_vofeed, usage_error=command.error)


def run_vofeed(args: argparse.Namespace) -> int:
    return run_feed(args, VO_FEED, {"feed": [args.file]} if args.file else {})
