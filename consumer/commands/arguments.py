"""Options and types of arguments that several commands share."""

from __future__ import annotations

import argparse

BIGGEST = 2**63 - 1


def add_instance(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--instance",
        type=whole_number,
        metavar="N",
        help="which of several processes that share the subscriptions, which need shared = true",
    )


def whole_number(text: str) -> int:
    if text.isascii() and text.isdigit() and 0 < int(text) <= BIGGEST:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, not {text!r}")
