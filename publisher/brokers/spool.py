"""A directory queue as a broker: a message is confirmed once it is on disk.

The limits are those of the spool; a full queue is an unavailable broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from sam_pipeline.publisher.brokers.transport import Transport
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.spool.bounded import BoundedSpool
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker import Target
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.schema.spool.queue import DirectoryQueue


class SpoolTransport(Transport):
    """Writes all messages even after the deadline: giving up would only mean spooling them."""

    def __init__(self, target: Target, deadline: Deadline) -> None:
        self._target = target
        broker = target.broker
        self._spool = BoundedSpool(Path(broker.path), target.limits, broker.shared)

    def send(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        try:
            for position, _ in enumerate(self._spool.add_all(messages)):
                yield position
        except SpoolError as error:
            raise BrokerUnavailable(self._target, str(error)) from error

    def close(self) -> None:
        """Nothing to close: no file stays open between two elements."""

    @classmethod
    def preview(cls, target: Target, message: Message) -> bytes:
        return serialise(message) + b"\n"

    @classmethod
    def round_trip(cls, target: Target, message: Message, deadline: Deadline) -> str:
        """Write an element, read it back and remove it."""
        broker = target.broker
        queue = DirectoryQueue(broker.path, broker.shared)
        try:
            name = BoundedSpool(queue.path, target.limits, broker.shared).add(message)
            if not queue.lock(name):
                return "confirmed, and read by another process at once"
            came_back = queue.read(name)
            queue.remove(name)
        except SpoolError as error:
            raise BrokerUnavailable(target, str(error)) from error
        if came_back != message:
            raise BrokerUnavailable(target, f"element {name} was read back as a different message")
        return "round trip"
