"""Options that several commands share."""

from __future__ import annotations

import argparse

from sam_pipeline.schema.program.command import whole_number


def add_instance(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--instance",
        type=whole_number(),
        metavar="N",
        help="which of several processes that share the subscriptions, which need shared = true",
    )
