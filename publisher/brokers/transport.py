"""The seam to the kinds of brokers: each kind is one module and one row of KINDS."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Callable, Optional, Protocol, cast

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.errors import MessageRejected
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker_url import (
    ACTIVEMQ_REST,
    AMS,
    RABBITMQ_API,
    SPOOL,
    STOMP,
    Broker,
)
from sam_pipeline.schema.net.deadline import Deadline

KINDS = {
    STOMP: "sam_pipeline.publisher.brokers.stomp.transport",
    ACTIVEMQ_REST: "sam_pipeline.publisher.brokers.rest.activemq",
    RABBITMQ_API: "sam_pipeline.publisher.brokers.rest.rabbitmq",
    AMS: "sam_pipeline.publisher.brokers.rest.ams",
    SPOOL: "sam_pipeline.publisher.brokers.spool",
}
"""The module of each kind; imported when first used, because starting quickly matters."""

Outcome = tuple[int, Optional[MessageRejected]]


def nothing_else() -> bool:
    """The work of a process that only waits."""
    return False


class Transport(Protocol):
    """An open way to one broker."""

    meanwhile: Callable[[], bool]
    """A piece of work to do while the broker is at work; False: there is none. Not all do it."""

    def send(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        """The position of each message as the broker confirms it, in any order.

        Raises:
            MessageRejected: one of them; the transport is good for the others.
            BrokerUnavailable: what was not confirmed until now is not.
        """

    def close(self) -> None: ...


class BrokerKind(Protocol):
    """What the module of a kind offers."""

    def connect(
        self, address: BrokerAddress, config: PublisherConfig, deadline: Deadline
    ) -> Transport:
        """Raises BrokerUnavailable."""

    def preview(self, broker: Broker, config: PublisherConfig, message: Message) -> bytes:
        """Exactly what would be handed over, but for secrets."""

    def round_trip(
        self, address: BrokerAddress, config: PublisherConfig, message: Message, deadline: Deadline
    ) -> str:
        """Send a check message and see it come back, as far as the broker lets a publisher look.

        The text says what was proven. Raises BrokerUnavailable and MessageRejected.
        """


def kind_of(broker: Broker) -> BrokerKind:
    return cast(BrokerKind, importlib.import_module(KINDS[broker.kind]))


def outcomes(
    transport: Transport, messages: Sequence[Message], deadline: Deadline
) -> Iterator[Outcome]:
    """Each message's position, with None as it is confirmed, or with its rejection.

    Raises:
        BrokerUnavailable: nothing is known of the messages without an outcome.
    """
    waiting = list(range(len(messages)))
    while waiting:
        settled = set()
        try:
            for at in transport.send([messages[position] for position in waiting], deadline):
                settled.add(at)
                yield waiting[at], None
        except MessageRejected as rejection:
            settled.add(rejection.position)
            yield waiting[rejection.position], rejection
        waiting = [position for at, position in enumerate(waiting) if at not in settled]
