"""Shared by the HTTP brokers: destinations, the headers that are sent, and a transport that sends
one message per request.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Callable

from sam_pipeline.publisher.brokers.rest.http import HttpSession, login_headers
from sam_pipeline.publisher.brokers.transport import nothing_else
from sam_pipeline.publisher.errors import BrokerUnavailable, MessageRejected
from sam_pipeline.schema.messages.message import DESTINATION, Message
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.frame import can_travel
from sam_pipeline.schema.net.target import Target

TOPIC, QUEUE = "topic", "queue"
READ_BACK_SHARE = 0.8
"""The share of the remaining time that is spent reading back; the rest is for cleaning up."""
PAUSE_S = 0.05

# No `/ ? > *`: they are wildcards, or mean different things to different brokers.
_DESTINATION = re.compile(r"/(topic|queue)/([\w.:$-]+)", re.ASCII)
_STOMP_HEADERS = {DESTINATION, "persistent"}


class CannotTravel(Exception):
    """The protocol can't carry the message; the text says why."""


class RefusedByBroker(CannotTravel):
    """The broker refuses the message, which others of its kind may take."""


@contextmanager
def rejecting(broker: object, position: int = 0) -> Iterator[None]:
    """Raise `MessageRejected` for a message that cannot travel."""
    try:
        yield
    except CannotTravel as error:
        for_good = not isinstance(error, RefusedByBroker)
        raise MessageRejected(broker, position, str(error), for_good) from error


def reason_not_to_travel(encode: Callable[[], object]) -> str:
    """Why a message can't be encoded; empty if it can."""
    try:
        encode()
    except CannotTravel as error:
        return str(error)
    return ""


class OneByOne(ABC):
    """One HTTP session, and one request per message."""

    meanwhile = staticmethod(nothing_else)

    def __init__(self, target: Target, deadline: Deadline) -> None:
        self._target = target
        login = login_headers(target)
        self._session = HttpSession(target, deadline, login)

    def send(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        for position, message in enumerate(messages):
            with rejecting(self._target, position):
                self._publish(message, deadline)
            yield position

    def close(self) -> None:
        self._session.close()

    @abstractmethod
    def _publish(self, message: Message, deadline: Deadline) -> None:
        """Return once the broker has the message; raises CannotTravel and BrokerUnavailable."""

    def _await_back(
        self,
        message: Message,
        deadline: Deadline,
        read: Callable[[float], Sequence[tuple[object, bytes]]],
    ) -> None:
        """Read until the message comes back unchanged.

        Args:
            read: waits at most that many seconds, returns pairs of message id and body.

        Raises:
            BrokerUnavailable: the message does not come back, or is changed.
        """
        patience = Deadline.after(deadline.remaining() * READ_BACK_SHARE)
        while not patience.expired:
            received = read(patience.remaining())
            for message_id, body in received:
                if message_id == message.message_id:
                    if body == message.body:
                        return
                    raise BrokerUnavailable(self._target, "the check message came back changed")
            if not received:
                time.sleep(PAUSE_S)
        raise BrokerUnavailable(self._target, "it confirmed the message but did not deliver it")


def destination_of(message: Message) -> tuple[str, str]:
    """The kind of the destination, TOPIC or QUEUE, and its name.

    Raises:
        CannotTravel: the destination is neither.
    """
    destination = message.headers.get(DESTINATION, "")
    match = _DESTINATION.fullmatch(destination)
    if not match:
        raise CannotTravel(f"destination {destination!r} is neither /topic/NAME nor /queue/NAME")
    return match[1], match[2]


def travelling_headers(message: Message) -> dict[str, str]:
    """The headers that reach a consumer over STOMP, without those of STOMP itself."""
    return {
        name: value.replace("\0", "")
        for name, value in message.headers.items()
        if name not in _STOMP_HEADERS and can_travel(name)
    }
