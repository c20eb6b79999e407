"""Options that several commands share."""

from __future__ import annotations

import argparse

from sam_pipeline.consumer.settings.config import problem_of_target
from sam_pipeline.schema.program.command import checked_argument, whole_number


def add_instance(parser: argparse.ArgumentParser) -> None:
    """Add the option `--instance`."""
    parser.add_argument(
        "--instance",
        type=whole_number(),
        metavar="N",
        help="number of this process, if several share the subscriptions (shared = true)",
    )


def add_targets(parser: argparse.ArgumentParser) -> None:
    """Add the option `--to` of a relay, which may be repeated for several brokers."""
    parser.add_argument(
        "--to",
        type=checked_argument(problem_of_target),
        action="append",
        default=[],
        metavar="URL",
        help="move the messages to this broker, stomp[+ssl]://[USER@]HOST[:PORT], or with several"
        " --to to the first one that confirms; or to one directory queue,"
        " spool:///PATH[?umask=007]; no database is needed (default: `relay_to` of sam.toml)",
    )
