"""`sam-db import`: what comes by file and not by message."""

from __future__ import annotations

import argparse
from typing import Any

from sql import gocdb_command

EXAMPLES = """\
examples:
  sam-db import gocdb --endpoints endpoints.xml --groups sites.xml
"""


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `import` and what it can read."""
    group = commands.add_parser(
        "import",
        parents=[common],
        help="read files into the class views",
        description="Read files into the class views.",
        epilog=EXAMPLES,
    )
    actions = group.add_subparsers(metavar="WHAT", required=True)
    for add in SUBCOMMANDS:
        add(actions, common)


# Each adds one WHAT: called with the subparsers and the common options.
SUBCOMMANDS = (gocdb_command.add_command,)
