"""`sam-db import feeds`: import all feeds that sam.toml names, for a timer."""

from __future__ import annotations

import argparse
import logging
import time
from typing import Any

from sam_pipeline.schema.errors import ConfigError, SamError
from sam_pipeline.schema.program.command import OK, print_json
from sam_pipeline.sql.commands.imports.feed_command import add_common_options, import_from_server

EXAMPLES = """\
examples:
  sam-db import feeds
  sam-db import feeds --dry-run --json

Imports each [[import.feed]] of sam.toml. A feed that fails changes nothing, and the others are
imported all the same; the exit code is that of the first failure.
"""

logger = logging.getLogger(__name__)


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    add_common_options(command)
    command.set_defaults(handler=run_feeds)


def run_feeds(args: argparse.Namespace) -> int:
    from sam_pipeline.sql.imports.feed_config import load_feeds

    feeds = load_feeds(args)
    if not feeds:
        raise ConfigError(["[import] has no feed: add a table [[import.feed]] to sam.toml"])
    code = OK
    results: list[dict[str, Any]] = []
    for number, feed in enumerate(feeds):
        if number:
            # Each snapshot has a second of its own, or rows of two feeds could have the same key.
            time.sleep(1 - time.time() % 1)
        try:
            outcome = import_from_server(args, feed)
        except SamError as error:
            for line in error.lines:
                logger.error("%s: %s", feed.kind, line)
            code = code or error.exit_code
            results.append({"kind": feed.kind, "url": feed.url, "error": "\n".join(error.lines)})
        else:
            results.append({"kind": feed.kind, **outcome.as_json()})
            if not args.json:
                outcome.print_text(args)
    if args.json:
        print_json(results)
    return code
