"""Prove the way from a STOMP broker to us: send a check message, and wait until it arrives.

The subscription is our own and ends with the connection, so nothing is taken from the consumer,
which may be running. It gets the check message as well, counts it and loads nothing.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import closing
from functools import partial

from sam_pipeline.consumer.sources.broker_dialects import dialect_of, subscribe_headers
from sam_pipeline.consumer.sources.stomp_link import Address, StompSettings
from sam_pipeline.consumer.sources.stomp_session import MAX_BODY_BYTES, RECEIVE_BYTES, Subscription
from sam_pipeline.schema.messages.message import MESSAGE_ID, new_message
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.net.channel import error_text
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.resolver import Resolver
from sam_pipeline.schema.net.round_trip import RoundTrip, timed
from sam_pipeline.schema.net.stomp_session import QUEUES, SessionLost, StompSession
from sam_pipeline.schema.records.classes import CHECK_CLASS

LOOK_UP_TIMEOUT_S = 15.0
ANSWER_S = 5.0
"""How long a broker may take for each step."""

_WILDCARD = re.compile(r"(?<=[./])[*#>](?=\.|$)")


def round_trips(broker: Broker, settings: StompSettings) -> Iterator[RoundTrip]:
    """One for each destination at each address behind the broker's name."""
    try:
        ips = Resolver().ips_of(broker.host, broker.port, Deadline.after(LOOK_UP_TIMEOUT_S))
    except OSError as error:
        yield RoundTrip(str(broker), "", "", None, 0.0, f"broker {broker}: {error_text(error)}")
        return
    for ip in sorted(ips):
        for subscription in settings.subscriptions:
            prove = partial(_prove, broker, (ip, broker.port), settings, subscription)
            yield timed(broker, ip, subscription.destination, prove, SessionLost)


def _prove(
    broker: Broker, address: Address, settings: StompSettings, subscription: Subscription
) -> str:
    """What was proven; raises SessionLost."""
    destination = subscription.destination
    try:
        login = settings.login(broker.user).headers()
        channel = settings.open_channel(broker, address)
        with closing(StompSession(channel, RECEIVE_BYTES, MAX_BODY_BYTES)) as session:
            return _round_trip(session, login, settings.consumer, subscription)
    except SessionLost as loss:
        reason = str(loss) if str(loss).startswith(destination) else f"{destination}: {loss}"
        raise SessionLost(f"broker {broker}: {reason}") from loss


def _round_trip(
    session: StompSession, login: dict[str, str | None], consumer: str, subscription: Subscription
) -> str:
    soon = partial(Deadline.after, ANSWER_S)
    dialect = dialect_of(session.log_in(login, soon()).get("server", ""))
    destination, prefetch = subscription.destination, subscription.prefetch
    if destination.startswith(QUEUES):
        headers = subscribe_headers(dialect, consumer, destination, prefetch=1, durable=False)
        session.ask("SUBSCRIBE", {**headers, "id": "0", "ack": "client"}, soon())
        # What was delivered returns to its place, and counts as never delivered.
        session.ask("UNSUBSCRIBE", {"id": "0"}, soon())
        return "subscribed; what is in a queue is for its consumers"
    headers = subscribe_headers(dialect, consumer, destination, prefetch, durable=False)
    session.ask("SUBSCRIBE", {**headers, "id": "0", "ack": "auto"}, soon())
    message = new_message(CHECK_CLASS, f"sam-consume check on {socket.gethostname()}\n")
    try:
        sent = {**message.headers, "destination": sent_to(destination)}
        session.ask("SEND", sent, soon(), message.body)
    except SessionLost as loss:
        if not loss.by_error:
            raise
        return f"subscribed; may not send a message to see it come ({loss})"
    deadline = soon()
    try:
        while session.message(deadline).headers.get(MESSAGE_ID) != message.message_id:
            pass
    except TimeoutError:
        problem = f"what was sent and confirmed did not come within {ANSWER_S:g} s"
        raise SessionLost(problem) from None
    return "round trip"


def sent_to(destination: str) -> str:
    """A destination that a subscription to `destination`, which may hold wildcards, covers."""
    return _WILDCARD.sub(CHECK_CLASS, destination)
