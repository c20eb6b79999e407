"""Deletes a durable subscription at its broker.

ActiveMQ and Artemis delete it by its name, unless it has a subscriber. RabbitMQ deletes it
when a client that has subscribed to it unsubscribes, with the headers of a durable subscription.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from typing import NamedTuple

from sam_pipeline.consumer.errors import BrokerUnreachable, UnsubscribeRefused
from sam_pipeline.consumer.sources.stomp.dialects import (
    ARTEMIS,
    RABBITMQ,
    BrokerDialect,
    subscribe_headers,
)
from sam_pipeline.consumer.sources.stomp.records import MadeSubscription
from sam_pipeline.consumer.sources.stomp.session import Address, StompSettings
from sam_pipeline.schema.net.broker import Broker
from sam_pipeline.schema.net.channel import error_text
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.session import NoAnswer, SessionLost, StompSession

ANSWER_S = 10.0
FORGET_S = 5.0
"""How long a broker takes at most to notice that a session has ended."""
RETRY_S = 0.2
MAX_COUNT = 1000
"""No more messages are counted."""
QUIET_S = 1.0
"""The messages are counted when none has arrived for so long."""
QUOTED_BYTES = 1024
"""Larger bodies are skipped while they arrive."""
ID = "0"
UNLIMITED = "-1"

CLIENT_IN_USE = "already connected"
STILL_READ = "AMQ339017"
"""Artemis can't delete a subscription until it has noticed that our first session has ended."""
READ_BY_OTHERS = (CLIENT_IN_USE, STILL_READ, "Durable consumer is in use")
MISSING = ("No durable subscription exists", "NOT_FOUND")


class Removal(NamedTuple):
    """A subscription that was deleted at one address of its broker.

    `existed`: whether the broker had it. `lost`: the number of messages that waited in it, at most
    MAX_COUNT; None if the broker did not deliver them.
    """

    address: str
    existed: bool
    lost: int | None


def remove(made: MadeSubscription, settings: StompSettings) -> Iterator[Removal]:
    """Delete a subscription at all addresses of its broker.

    `settings` are those of the client that made it.

    Raises:
        BrokerUnreachable: it is not deleted, or only at some addresses.
        UnsubscribeRefused: the broker refuses that.
    """
    broker = made.address()
    settings = replace(settings, vhost=made.vhost)
    try:
        families = settings.families_of(broker)
    except OSError as error:
        raise BrokerUnreachable(f"broker {broker}: {error_text(error)}") from error

    def answers(ip: str) -> bool:
        with suppress(SessionLost):
            settings.open_channel(broker, (ip, broker.port)).close()
            return True
        return False

    while len(families) > 1 and not any(map(answers, families[0])):
        del families[0]  # the other one leads to the same hosts
    for ip in families[0]:
        try:
            yield _remove(made, broker, (ip, broker.port), settings)
        except SessionLost as loss:
            text = f"broker {broker}: {made.stored_in} is not deleted: {loss}"
            if any(sign in str(loss) for sign in READ_BY_OTHERS):
                text += "; another process reads it, perhaps on another machine"
            raise (UnsubscribeRefused if loss.by_error else BrokerUnreachable)(text) from loss


def _remove(
    made: MadeSubscription, broker: Broker, address: Address, settings: StompSettings
) -> Removal:
    def opened() -> tuple[StompSession, BrokerDialect]:
        """A new session; waits until the broker has forgotten the one before."""
        ends_at = time.monotonic() + FORGET_S
        while True:
            try:
                return settings.open_session(broker, address, QUOTED_BYTES, ANSWER_S)
            except SessionLost as loss:
                if CLIENT_IN_USE not in str(loss) or time.monotonic() > ends_at:
                    raise
                time.sleep(RETRY_S)

    lost = None
    session, dialect = opened()
    with closing(session):
        try:
            session.ask("SUBSCRIBE", _reading(dialect, made), _soon())
            lost = 0
            deadline = _soon()
            while lost < MAX_COUNT and not deadline.expired:
                try:
                    session.message(Deadline.after(min(QUIET_S, deadline.remaining())))
                except NoAnswer:
                    break
                lost += 1
        except SessionLost as loss:
            if not loss.by_error:
                raise
            if _is_missing(loss):
                return Removal(address[0], False, 0)
    ends_at = time.monotonic() + FORGET_S
    while True:
        session, dialect = opened()
        with closing(session):
            try:
                if dialect.kind == RABBITMQ:
                    session.ask("SUBSCRIBE", _headers(dialect, made), _soon())
                headers: Mapping[str, str] = _headers(dialect, made)
                if dialect.kind == ARTEMIS:
                    # It deletes the queue with the name of client and subscription; that of a
                    # shared one also begins with our name.
                    name = made.stored_in.removeprefix(f"{made.consumer}.")
                    headers = {"id": ID, "durable-subscription-name": name}
                session.ask("UNSUBSCRIBE", headers, _soon())
                if dialect.kind == RABBITMQ:  # it confirms in any case
                    session.ask("SUBSCRIBE", _reading(dialect, made), _soon())
                    raise SessionLost("the broker confirmed, but did not delete it", by_error=True)
                return Removal(address[0], True, lost)
            except SessionLost as loss:
                if _is_missing(loss):
                    return Removal(address[0], dialect.kind == RABBITMQ, lost)
                if STILL_READ not in str(loss) or time.monotonic() > ends_at:
                    raise
        time.sleep(RETRY_S)


def _headers(dialect: BrokerDialect, made: MadeSubscription) -> dict[str, str]:
    """The headers of SUBSCRIBE with which it was made."""
    headers = subscribe_headers(dialect, made.consumer, made.destination, MAX_COUNT, made.shared)
    return {**headers, **made.headers, "id": ID, "ack": "client"}


def _reading(dialect: BrokerDialect, made: MadeSubscription) -> dict[str, str]:
    """The headers of SUBSCRIBE to read it as it is; RabbitMQ makes none if it does not exist."""
    if dialect.kind == RABBITMQ:
        queue = f"/amq/queue/{made.stored_in}"
        return {"destination": queue, "prefetch-count": str(MAX_COUNT), "id": "1", "ack": "client"}
    headers = _headers(dialect, made)
    if dialect.kind == ARTEMIS:
        headers["consumer-window-size"] = UNLIMITED
    return headers


def _soon() -> Deadline:
    return Deadline.after(ANSWER_S)


def _is_missing(loss: SessionLost) -> bool:
    return loss.by_error and any(text in str(loss) for text in MISSING)
