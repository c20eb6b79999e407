"""The interface to the kinds of brokers; each kind is a module, listed in KINDS."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Callable, Optional, cast

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

if TYPE_CHECKING:
    from typing import Protocol
else:  # as classes for the type checker alone they cost 1 % of publishing a result
    Protocol = object

KINDS = {
    STOMP: "sam_pipeline.publisher.brokers.stomp",
    ACTIVEMQ_REST: "sam_pipeline.publisher.brokers.activemq",
    RABBITMQ_API: "sam_pipeline.publisher.brokers.rabbitmq",
    AMS: "sam_pipeline.publisher.brokers.ams",
    DOOR: "sam_pipeline.publisher.brokers.door",
    SPOOL: "sam_pipeline.publisher.brokers.spool",
}
"""The module of each kind; imported when first used, for a quick start."""

Outcome = tuple[int, Optional[MessageRejected]]


def nothing_else() -> bool:
    """For a transport whose owner has no other work: there is nothing to do."""
    return False


class Transport(Protocol):
    """An open connection to one broker."""

    meanwhile: Callable[[], bool]
    """Does a piece of other work while the broker works; returns False if there is none.

    Some transports never call it.
    """

    def send(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        """The position of each message as the broker confirms it, in any order.

        Raises:
            MessageRejected: the broker refused one message; the transport still works.
            BrokerUnavailable: the other messages are not confirmed, and will not be.
        """

    def close(self) -> None: ...


class BrokerKind(Protocol):
    """The functions in the module of a kind."""

    def connect(self, target: Target, deadline: Deadline) -> Transport:
        """Raises BrokerUnavailable."""

    def refusal_of(self, broker: Broker, message: Message) -> str:
        """Why no broker of this kind can take the message; empty if one can."""

    def preview(self, target: Target, message: Message) -> bytes:
        """The exact bytes that would be sent, with secrets hidden."""

    def round_trip(self, target: Target, message: Message, deadline: Deadline) -> str:
        """Send a check message and read it back, as far as a publisher may; return the proof.

        Raises BrokerUnavailable and MessageRejected.
        """


def kind_of(broker: Broker) -> BrokerKind:
    return cast(BrokerKind, importlib.import_module(KINDS[broker.kind]))


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
