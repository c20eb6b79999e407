"""Tests the path from a STOMP broker: sends a check message and waits until it arrives.

The subscription is separate and ends with the connection, so no message is taken from the consumer,
which may be running. It gets the check message as well, and counts it without loading anything.
"""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial

from sam_pipeline.consumer.sources.stomp.dialects import subscribe_headers
from sam_pipeline.consumer.sources.stomp.session import Address, StompSettings, Subscription
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.messages.destination import QUEUES
from sam_pipeline.schema.messages.message import MESSAGE_ID, Message, new_message
from sam_pipeline.schema.net.broker import Broker, Proxy
from sam_pipeline.schema.net.channel import error_text
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.round_trip import RoundTrip, timed
from sam_pipeline.schema.net.stomp.session import NoAnswer, SessionLost, StompSession
from sam_pipeline.schema.records.classes import CHECK_CLASS

ROUND_TRIP = "round trip"
FORGED_USER = "sam-check-forged"
"""The user name in check messages, which a broker that vouches for its users must replace."""
ANSWER_S = 5.0

_WILDCARD = re.compile(r"(?<=[./])[*#>](?=\.|$)")


def round_trips(broker: Broker, settings: StompSettings) -> Iterator[RoundTrip]:
    """One for each destination at each address behind the name of the broker."""
    try:
        proxy = settings.proxy() if settings.proxy else None
        *others, last = map(sorted, settings.families_of(broker))
    except (OSError, ConfigError) as error:
        yield RoundTrip(str(broker), "", "", None, 0.0, f"broker {broker}: {error_text(error)}")
        return
    for family in others:
        trips = list(_trips_to(family, broker, settings, proxy))
        if any(trip.problem is None for trip in trips):
            yield from trips
            return
    # The families lead to the same hosts: one that works is enough.
    yield from _trips_to(last, broker, settings, proxy)


def _trips_to(
    ips: Iterable[str], broker: Broker, settings: StompSettings, proxy: Proxy | None
) -> Iterator[RoundTrip]:
    for ip in ips:
        for subscription in settings.subscriptions:
            # A client-id of its own: a broker takes its time to forget a session that ended with an
            # ERROR or a timeout, and until then refuses the next one of the same client-id.
            client_id = f"{settings.client_id or settings.consumer}-{secrets.token_hex(4)}"
            own_settings = replace(settings, client_id=client_id)
            address = (ip, broker.port)
            limits: list[str] = []
            prove = partial(_prove, broker, address, own_settings, subscription, limits)
            trip = timed(broker, str(proxy or ip), subscription.destination, prove, SessionLost)
            is_open = trip.problem is None and _anybody_may_publish(
                broker, address, own_settings, subscription.destination, trip.proven
            )
            yield trip._replace(anybody_may_publish=is_open, limit="".join(limits))


def _prove(
    broker: Broker,
    address: Address,
    settings: StompSettings,
    subscription: Subscription,
    limits: list[str],
) -> str:
    """What the round trip proved; raises SessionLost. Adds the broker's limit on deliveries."""
    destination = subscription.destination
    soon = partial(Deadline.after, ANSWER_S)
    try:
        max_bytes = settings.max_message_bytes
        session, dialect = settings.open_session(broker, address, max_bytes, ANSWER_S)
        with closing(session):
            limits.append(dialect.limit_of(subscription.headers))
            is_queue = destination.startswith(QUEUES)
            prefetch = 1 if is_queue else subscription.prefetch or dialect.prefetch
            headers = subscribe_headers(
                dialect, settings.consumer, destination, prefetch, durable=False
            )
            if is_queue:  # its headers must be those with which it was made
                headers |= subscription.headers
            headers |= {"id": "0", "ack": "client" if is_queue else "auto"}
            session.ask("SUBSCRIBE", headers, soon())
            if is_queue:
                # The broker puts messages that it delivered back, as if never delivered.
                session.ask("UNSUBSCRIBE", {"id": "0"}, soon())
                return "subscribed; messages in a queue are left to its consumers"
            message = _check_message()
            sent = {**message.headers, "destination": sent_to(destination)}
            if settings.vouches and not dialect.refuses_forged_user:
                sent[dialect.user_header] = FORGED_USER
            try:
                session.ask("SEND", sent, soon(), message.body)
            except SessionLost as loss:
                if not loss.by_error:
                    raise
                return f"subscribed; sending a message is not permitted ({loss})"
            deadline = soon()
            try:
                arrived = session.message(deadline).headers
                while arrived.get(MESSAGE_ID) != message.message_id:
                    arrived = session.message(deadline).headers
            except NoAnswer:
                problem = f"the message sent and confirmed did not arrive within {ANSWER_S:g} s"
                raise SessionLost(problem) from None
            if arrived.get(dialect.user_header) == FORGED_USER:
                raise SessionLost(
                    f"publishers can set {dialect.user_header} themselves: configure the broker to"
                    " set it (docs/consumer-reference.md, Identities), or remove it from"
                    " trusted_brokers"
                )
            return ROUND_TRIP
    except SessionLost as loss:
        reason = str(loss) if str(loss).startswith(destination) else f"{destination}: {loss}"
        raise SessionLost(f"broker {broker}: {reason}") from loss


def _anybody_may_publish(
    broker: Broker, address: Address, settings: StompSettings, destination: str, proven: str | None
) -> bool:
    """Whether the broker confirms a message to a topic without login and certificate.

    A queue belongs to its consumers: nothing is sent there.
    """
    if destination.startswith(QUEUES):
        return False
    files = settings.tls_files
    if not (broker.user or settings.user or (broker.tls and files.certificate_file)):
        return proven == ROUND_TRIP
    no_files = files._replace(certificate_file=None, key_file=None)
    soon = partial(Deadline.after, ANSWER_S)
    with suppress(SessionLost):
        without = replace(settings, tls_files=no_files, tls_context=None)
        channel = without.open_channel(broker, address)
        with closing(StompSession(channel)) as session:
            session.log_in({"host": settings.vhost}, soon())
            message = _check_message()
            sent = {**message.headers, "destination": sent_to(destination)}
            session.ask("SEND", sent, soon(), message.body)
            return True
    return False


def _check_message() -> Message:
    return new_message(CHECK_CLASS, f"sam-consume check on {socket.gethostname()}\n")


def sent_to(destination: str) -> str:
    """A destination that a subscription to `destination`, which may have wildcards, covers."""
    return _WILDCARD.sub(CHECK_CLASS, destination)
