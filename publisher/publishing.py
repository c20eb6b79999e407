"""The last step of every command that publishes: send, tell, and choose the exit code."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from publisher.announcement import document, lines
from publisher.config import PublisherConfig, load_config
from publisher.errors import NoBrokerTookIt
from publisher.publication import Publication, publish
from publisher.records import RefusedRecord
from publisher.transport import kind_of
from schema.broker import SPOOL, Broker
from schema.command import BAD_DATA, OK, TRY_LATER, to_json
from schema.message import Message

Say = Callable[[str], None]


def config_of(args: argparse.Namespace) -> PublisherConfig:
    """The configuration under the options of the command line."""
    names = ("brokers", "timeout_s", "message_class", "destination")
    flags = {name: getattr(args, name, None) for name in names}
    if flags["brokers"]:
        flags["brokers"] = tuple(flags["brokers"])
    config = load_config(args.config, flags)
    return replace(config, spool=None) if getattr(args, "no_spool", False) else config


def publish_and_tell(
    messages: Sequence[Message],
    refused: Sequence[RefusedRecord],
    config: PublisherConfig,
    args: argparse.Namespace,
    say: Say = print,
) -> int:
    """Publish, say what was sent where, and give the exit code.

    Raises:
        NoBrokerTookIt: after what was sent is said.
    """
    started = time.monotonic()
    failure = None
    try:
        publication = publish(messages, config)
    except NoBrokerTookIt as error:
        publication, failure = error.publication, error
    elapsed_s = time.monotonic() - started
    if args.json:
        say(to_json(document(publication, config.spool, refused, elapsed_s)))
    else:
        for line in lines(publication, config.spool, elapsed_s):
            say(line)
    if failure:
        sys.stdout.flush()  # what was sent is told before what was not
        raise failure
    return _exit_code(publication, refused, args.require_broker)


def preview(messages: Sequence[Message], config: PublisherConfig) -> bytes:
    """Exactly what the first broker, or else the spool, would get."""
    spool = Broker(SPOOL, path=str(config.spool))
    kind = kind_of(next(iter(config.broker_list), spool))
    return b"".join(kind.preview(config.addressed(message)) for message in messages)


def _exit_code(
    publication: Publication, refused: Sequence[RefusedRecord], require_broker: bool
) -> int:
    if require_broker and publication.spooled:
        return TRY_LATER
    return BAD_DATA if refused or publication.rejections else OK
