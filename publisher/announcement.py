"""The last step of what publishes: send, say what was sent where, and choose the exit code."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from publisher.config import DESTINATION, PublisherConfig
from publisher.publication import NoBrokerTookIt, Publication, publish
from publisher.records import RefusedRecord
from schema.command import BAD_DATA, OK, TRY_LATER, to_json
from schema.message import Message

FEW = 10
"""So many messages get a line each; of more only the totals are told."""


Say = Callable[[str], None]


class Placed(NamedTuple):
    """Where a message went: `published` to a broker or `spooled` in a directory."""

    message: Message
    verb: str
    place: str


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


def lines(publication: Publication, spool: Path | None, elapsed_s: float) -> Iterator[str]:
    """What was sent where."""
    placed = _placed(publication, spool)
    if len(placed) <= FEW:
        yield from map(_one, placed)
        return
    for verb, place in dict.fromkeys(item[1:] for item in placed):
        messages = [item.message for item in placed if item[1:] == (verb, place)]
        records = sum(message.record_count or 0 for message in messages)
        counted = f"{len(messages)} messages ({_records(records)})"
        yield f"{verb} {counted} {_preposition(verb)} {place} in {elapsed_s:.1f} s"


def document(
    publication: Publication,
    spool: Path | None,
    refused: Sequence[RefusedRecord],
    elapsed_s: float,
) -> dict[str, Any]:
    """The same and more, for programs."""
    return {
        "messages": [
            {
                "message_id": message.message_id,
                "message_class": message.message_class,
                "records": message.record_count,
                "destination": message.headers[DESTINATION],
                "outcome": verb,
                "place": place,
            }
            for message, verb, place in _placed(publication, spool)
        ],
        "rejected": [
            {
                "message_id": rejection.message.message_id,
                "broker": str(rejection.address),
                "reason": rejection.reason,
            }
            for rejection in publication.rejections
        ],
        "refused_records": [
            {"source": item.source, "line": item.line, "reason": item.reason, "text": item.text}
            for item in refused
        ],
        "unavailable": [
            {"broker": failure.broker, "reason": failure.reason} for failure in publication.failures
        ],
        "drained": publication.drained,
        "elapsed_s": round(elapsed_s, 3),
    }


def _placed(publication: Publication, spool: Path | None) -> list[Placed]:
    published = [
        Placed(receipt.message, "published", str(receipt.address))
        for receipt in publication.receipts
    ]
    return published + [Placed(message, "spooled", str(spool)) for message in publication.spooled]


def _one(placed: Placed) -> str:
    message, verb, place = placed
    count = message.record_count
    size = f"{len(message.body)} bytes" if count is None else _records(count)
    where = f"{_preposition(verb)} {place}"
    return (
        f"{verb} {message.message_id} ({message.message_class}, {size}) {where}"
        f" for {message.headers[DESTINATION]}"
    )


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


def _preposition(verb: str) -> str:
    return "to" if verb == "published" else "in"


def _exit_code(
    publication: Publication, refused: Sequence[RefusedRecord], require_broker: bool
) -> int:
    if require_broker and publication.spooled:
        return TRY_LATER
    return BAD_DATA if refused or publication.rejections else OK
