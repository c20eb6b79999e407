"""The interface to the kinds of brokers; each kind is a class, listed in KINDS."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Callable, Optional, cast

from sam_pipeline.publisher.errors import MessageRejected
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker import (
    ACTIVEMQ_REST,
    AMS,
    DOOR,
    RABBITMQ_API,
    SPOOL,
    STOMP,
    Broker,
    Target,
)
from sam_pipeline.schema.net.deadline import Deadline

KINDS = {
    STOMP: ("stomp", "StompTransport"),
    ACTIVEMQ_REST: ("activemq", "ActiveMQRest"),
    RABBITMQ_API: ("rabbitmq", "RabbitMQApi"),
    AMS: ("ams", "Ams"),
    DOOR: ("door", "Door"),
    SPOOL: ("spool", "SpoolTransport"),
}
"""The module and the class of each kind; imported when first used, for a quick start."""

Outcome = tuple[int, Optional[MessageRejected]]


def nothing_else() -> bool:
    """The `meanwhile` of a transport whose owner has no other work."""
    return False


class Transport(ABC):
    """An open connection to one broker; its class is the kind of the broker."""

    meanwhile: Callable[[], bool] = staticmethod(nothing_else)
    """Does a piece of other work while the broker works; returns False if there is none.

    Some transports never call it.
    """

    @abstractmethod
    def __init__(self, target: Target, deadline: Deadline) -> None:
        """Raises BrokerUnavailable."""

    @abstractmethod
    def send(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        """The position of each message as the broker confirms it, in any order.

        Raises:
            MessageRejected: the broker refused one message; the transport still works.
            BrokerUnavailable: the other messages are not confirmed, and will not be.
        """

    @abstractmethod
    def close(self) -> None: ...

    @classmethod
    def refusal_of(cls, broker: Broker, message: Message) -> str:
        """Why no broker of this kind can take the message; empty if one can."""
        return ""

    @classmethod
    @abstractmethod
    def preview(cls, target: Target, message: Message) -> bytes:
        """The exact bytes that would be sent, with secrets hidden."""

    @classmethod
    @abstractmethod
    def round_trip(cls, target: Target, message: Message, deadline: Deadline) -> str:
        """Send a check message and read it back, as far as a publisher may; return the proof.

        Raises BrokerUnavailable and MessageRejected.
        """


def kind_of(broker: Broker) -> type[Transport]:
    module, name = KINDS[broker.kind]
    imported = importlib.import_module(f"sam_pipeline.publisher.brokers.{module}")
    return cast("type[Transport]", getattr(imported, name))


def outcomes(
    transport: Transport, messages: Sequence[Message], deadline: Deadline
) -> Iterator[Outcome]:
    """The position of each message with None once it is confirmed, or with its rejection.

    Raises:
        BrokerUnavailable: messages without an outcome may or may not have arrived.
    """
    waiting = list(range(len(messages)))
    while waiting:
        settled = set()
        try:
            for index in transport.send([messages[position] for position in waiting], deadline):
                settled.add(index)
                yield waiting[index], None
        except MessageRejected as rejection:
            settled.add(rejection.position)
            yield waiting[rejection.position], rejection
        if len(settled) == len(waiting):
            return
        waiting = [position for index, position in enumerate(waiting) if index not in settled]
