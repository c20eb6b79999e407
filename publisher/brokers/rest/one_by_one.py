"""What the kinds that speak HTTP share: what a destination names, which headers travel, and how
messages are sent that have an answer each.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.stomp.headers import belongs_to_broker, is_header_name
from sam_pipeline.publisher.brokers.transport import nothing_else
from sam_pipeline.publisher.errors import MessageRejected
from sam_pipeline.publisher.settings.config import DESTINATION
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.deadline import Deadline

TOPIC, QUEUE = "topic", "queue"

# No / . ? > * and the like: they mean different things to different brokers, or many destinations.
_DESTINATION = re.compile(r"/(topic|queue)/([\w.:$-]+)", re.ASCII)
_OF_STOMP = {DESTINATION, "persistent"}


class CannotTravel(Exception):
    """This way can't carry the message, or the broker does not want it; the words say why."""


class OneByOne(ABC):
    """A transport on which each message has an answer of its own."""

    meanwhile = staticmethod(nothing_else)
    _address: BrokerAddress

    def send(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        for position, message in enumerate(messages):
            try:
                self._publish(message, deadline)
            except CannotTravel as error:
                raise MessageRejected(self._address, position, str(error)) from error
            yield position

    @abstractmethod
    def _publish(self, message: Message, deadline: Deadline) -> None:
        """Return when the broker has it; raises CannotTravel and BrokerUnavailable."""


def destination_of(message: Message) -> tuple[str, str]:
    """Topic or queue, and its name.

    Raises:
        CannotTravel: the destination is neither.
    """
    destination = message.headers.get(DESTINATION, "")
    found = _DESTINATION.fullmatch(destination)
    if not found:
        raise CannotTravel(f"destination {destination!r} is no /topic/NAME and no /queue/NAME")
    return found[1], found[2]


def travelling_headers(message: Message) -> dict[str, str]:
    """The headers that a STOMP consumer gets from a STOMP publisher, but for those of STOMP.

    As there, what brokers would take for their own stays behind.
    """
    return {
        name: value.replace("\0", "")
        for name, value in message.headers.items()
        if name not in _OF_STOMP and is_header_name(name) and not belongs_to_broker(name)
    }
