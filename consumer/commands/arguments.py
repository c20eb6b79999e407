"""Options that several commands share."""

from __future__ import annotations

import argparse

from sam_pipeline.consumer.config import ConsumerConfig
from sam_pipeline.schema.net.broker_url import SPOOL, Broker, parse_broker
from sam_pipeline.schema.program.command import whole_number


def add_instance(parser: argparse.ArgumentParser) -> None:
    """Add the option `--instance`."""
    parser.add_argument(
        "--instance",
        type=whole_number(),
        metavar="N",
        help="number of this process, if several share the subscriptions (shared = true)",
    )


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add the option `--to` of a relay."""
    parser.add_argument(
        "--to",
        type=_spool_url,
        metavar="spool:///PATH[?umask=007]",
        help="move the messages to this directory queue, which accounts of a group share with"
        " ?umask=007; no database is needed",
    )


def problem_of_target(target: Broker | None, config: ConsumerConfig) -> str | None:
    """Whether a relay would move messages to where it reads them."""
    if target and str(target) in config.spools:
        return f"--to {target}: this is one of the brokers to read from"
    return None


def _spool_url(text: str) -> Broker:
    try:
        broker = parse_broker(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if broker.kind != SPOOL:
        raise argparse.ArgumentTypeError(f"{text}: expected spool:///PATH")
    return broker
