"""A directory queue as the broker: confirmed when the element is on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from publisher.address import BrokerAddress
from publisher.config import PublisherConfig
from publisher.deadline import Deadline
from publisher.errors import BrokerUnavailable
from schema.errors import SpoolError
from schema.message import Message
from schema.spool import DirectoryQueue


def connect(address: BrokerAddress, config: PublisherConfig, deadline: Deadline) -> SpoolTransport:
    return SpoolTransport(address)


def preview(message: Message) -> bytes:
    """The element, written to a directory that is thrown away."""
    from tempfile import TemporaryDirectory  # slow to import, and a dry run is rare

    with TemporaryDirectory() as directory:
        element = DirectoryQueue(directory).add(message)
        return (Path(directory) / element).read_bytes() + b"\n"


class SpoolTransport:
    """Writes elements one by one, and all of them: the alternative to this disk is another."""

    def __init__(self, address: BrokerAddress) -> None:
        self._address = address
        self._queue = DirectoryQueue(address.broker.path)

    def send(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        for position, message in enumerate(messages):
            try:
                self._queue.add(message)
            except SpoolError as error:
                raise BrokerUnavailable(self._address, str(error)) from error
            yield position

    def close(self) -> None:
        """Nothing is open between two elements."""
