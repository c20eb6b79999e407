"""A directory queue as a broker: a message is confirmed once it is on disk.

The limits are those of the spool; a full queue is an unavailable broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.transport import nothing_else
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.publisher.spool.bounded import BoundedSpool
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.schema.spool.queue import DirectoryQueue


def refusal_of(broker: Broker, message: Message) -> str:
    return ""


def preview(broker: Broker, config: PublisherConfig, message: Message) -> bytes:
    return serialise(message) + b"\n"


def round_trip(
    address: BrokerAddress, config: PublisherConfig, message: Message, deadline: Deadline
) -> str:
    """Write an element, read it back and remove it."""
    broker = address.broker
    queue = DirectoryQueue(broker.path, broker.shared)
    try:
        name = BoundedSpool(queue.path, config, broker.shared).add(message)
        if not queue.lock(name):
            return "confirmed, and read by another process at once"
        came_back = queue.read(name)
        queue.remove(name)
    except SpoolError as error:
        raise BrokerUnavailable(address, str(error)) from error
    if came_back != message:
        raise BrokerUnavailable(address, f"element {name} was read back as a different message")
    return "round trip"


class SpoolTransport:
    """Writes all messages even after the deadline: giving up would only mean spooling them."""

    meanwhile = staticmethod(nothing_else)

    def __init__(self, address: BrokerAddress, config: PublisherConfig, deadline: Deadline) -> None:
        self._address = address
        broker = address.broker
        self._spool = BoundedSpool(Path(broker.path), config, broker.shared)

    def send(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        try:
            for position, _ in enumerate(self._spool.add_all(messages)):
                yield position
        except SpoolError as error:
            raise BrokerUnavailable(self._address, str(error)) from error

    def close(self) -> None:
        """Nothing to close: no file stays open between two elements."""


connect = SpoolTransport
