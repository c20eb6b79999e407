"""Options that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker_url import (
    SPOOL,
    STOMP,
    Broker,
    parse_broker,
    problem_of_login,
)
from sam_pipeline.schema.program.command import whole_number


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
        type=_target,
        action="append",
        default=[],
        metavar="URL",
        help="move the messages to this broker, stomp[+ssl]://[USER@]HOST[:PORT], or with several"
        " --to to the first one that confirms; or to one directory queue,"
        " spool:///PATH[?umask=007]; no database is needed",
    )


def problems_of_targets(targets: Sequence[Broker], config: ConsumerConfig) -> Iterator[str]:
    """Why a relay can't move messages from its brokers to the targets."""
    if len(targets) > 1 and any(target.kind == SPOOL for target in targets):
        yield "--to: expected one spool, or any number of stomp:// and stomp+ssl:// brokers"
    names = [str(target) for target in targets]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"--to {name}: appears twice"
    sources = {str(broker) for broker in config.brokers}
    for target in targets:
        if str(target) in sources:
            yield f"--to {target}: this is one of the brokers to read from"
        if problem := problem_of_login(target, config.user_at(target), config.insecure):
            yield f"--to {target}: {problem}"
        try:
            if target.kind == STOMP:
                config.has_proxy(target)
        except ConfigError as error:
            yield f"--to {error}"


def _target(text: str) -> Broker:
    try:
        broker = parse_broker(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if broker.kind not in (STOMP, SPOOL):
        expected = "expected stomp://HOST, stomp+ssl://HOST or spool:///PATH"
        raise argparse.ArgumentTypeError(f"{text}: {expected}")
    return broker
