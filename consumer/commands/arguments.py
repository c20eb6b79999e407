"""Options that several commands share."""

from __future__ import annotations

import argparse

from sam_pipeline.schema.program.command import whole_number


def add_instance(parser: argparse.ArgumentParser) -> None:
    """Add the option `--instance`."""
    parser.add_argument(
        "--instance",
        type=whole_number(),
        metavar="N",
        help="number of this process, if several share the subscriptions (shared = true)",
    )
