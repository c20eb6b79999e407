"""Prove the way from a STOMP broker to us: send a check message, and see it come.

The subscription is our own and ends with the connection, so nothing is taken from the consumer,
which may be running. It gets the check message as well, counts it and loads nothing.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from sam_pipeline.consumer.core.inbox import BatchRule, Inbox, acknowledge
from sam_pipeline.consumer.errors import SessionLost
from sam_pipeline.consumer.sources.broker_dialects import QUEUES
from sam_pipeline.consumer.sources.stomp import resolve
from sam_pipeline.consumer.sources.stomp_link import StompSettings
from sam_pipeline.consumer.sources.stomp_session import Address, StompSession
from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.net.channel import words_of
from sam_pipeline.schema.net.tls import secure
from sam_pipeline.schema.records.classes import CHECK_CLASS

ANSWER_S = 5.0
"""How long a broker may take for each step."""
LOOK_S = 0.05
AT_ONCE = BatchRule(size=1000, age_s=0.0)

_WILDCARD = re.compile(r"(?<=[./])[*#>](?=\.|$)")


@dataclass(frozen=True)
class Trip:
    """What became of a check of one destination at one address: `proven` in words, or why not."""

    broker: str
    address: str
    destination: str
    proven: str | None
    seconds: float
    problem: str | None = None


def round_trips(broker: Broker, settings: StompSettings) -> Iterator[Trip]:
    """One for each destination at each address behind the broker's name."""
    try:
        addresses: Sequence[Address] = resolve(broker.host, broker.port)
    except OSError as error:
        yield Trip(str(broker), "", "", None, 0.0, f"broker {broker}: {words_of(error)}")
        return
    for address in addresses:
        for number in range(len(settings.subscriptions)):
            yield _trip(broker, address, settings, number)


def _trip(broker: Broker, address: Address, settings: StompSettings, number: int) -> Trip:
    began = time.monotonic()
    destination = settings.subscriptions[number].destination
    proven, problem = None, None
    try:
        proven = _proven(broker, address, settings, number)
    except SessionLost as loss:
        words = str(loss) if str(loss).startswith(destination) else f"{destination}: {loss}"
        problem = f"broker {broker}: {words}"
    seconds = round(time.monotonic() - began, 3)
    return Trip(str(broker), address[0], destination, proven, seconds, problem)


def _proven(broker: Broker, address: Address, settings: StompSettings, number: int) -> str:
    """In words; raises SessionLost where nothing is."""
    subscription = settings.subscriptions[number]._replace(durable=False, shared=False)
    inbox = Inbox(subscription.prefetch)
    session = StompSession(str(broker), inbox, ANSWER_S, settings.heart_beat_s)
    secure_it = partial(secure, broker=broker, files=settings.tls_files)
    with closing(session):
        session.open(address, settings.login(broker.user), secure_it if broker.tls else None)
        if subscription.destination.startswith(QUEUES):
            session.subscribe(settings.consumer, [subscription._replace(prefetch=1)])
            session.unsubscribe()  # what came is back in its place, and was never delivered
            return "subscribed; what is in a queue is for its consumers"
        session.subscribe(settings.consumer, [subscription])
        message = _check_message()
        try:
            session.send(message, sent_to(subscription.destination))
        except SessionLost as loss:
            if not session.refused:
                raise
            return f"subscribed; may not send a message to see it come ({loss})"
        _see_it_come(session, inbox, message)
        return "round trip"


def sent_to(destination: str) -> str:
    """A destination that a subscription to `destination`, which may hold wildcards, covers."""
    return _WILDCARD.sub(CHECK_CLASS, destination)


def _check_message() -> Message:
    return new_message(CHECK_CLASS, f"sam-consume check on {socket.gethostname()}\n")


def _see_it_come(session: StompSession, inbox: Inbox, message: Message) -> None:
    deadline = time.monotonic() + ANSWER_S
    while time.monotonic() < deadline:
        session.serve(threading.Event(), LOOK_S)
        batch = inbox.take(AT_ONCE, wait_s=0.0)
        acknowledge(batch)  # of our own subscription: others have theirs
        if any(each.message.message_id == message.message_id for each in batch):
            return
    raise SessionLost(f"what was sent and confirmed did not come within {ANSWER_S:g} s")
