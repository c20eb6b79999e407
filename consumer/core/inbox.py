"""Deliveries, and the bounded queue between all sources and the main loop."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from sam_pipeline.schema.messages.message import Message

NO_LIMIT = 2**62


class Session(Protocol):
    """The scope of ack tokens: a connection, or a spool."""

    broker: str

    def ack(self, tokens: Sequence[Any]) -> None:
        """Let another thread inform the broker that the messages are stored.

        It neither waits nor fails if the connection is lost, since they are redelivered then.
        """


class Delivery(NamedTuple):
    """A message, with the session and the token by which to acknowledge it."""

    message: Message
    session: Session
    token: Any


def acknowledge(batch: Sequence[Delivery]) -> None:
    """Ack all deliveries of a batch, in order."""
    by_session: dict[Session, list[Any]] = {}
    for delivery in batch:
        by_session.setdefault(delivery.session, []).append(delivery.token)
    for session, tokens in by_session.items():
        session.ack(tokens)


def size_of(deliveries: Sequence[Delivery]) -> int:
    """The total size of the bodies in bytes."""
    return sum(len(delivery.message.body) for delivery in deliveries)


def count_by_broker(deliveries: Sequence[Delivery]) -> Counter[str]:
    """The number of deliveries by broker."""
    return Counter(delivery.session.broker for delivery in deliveries)


class BatchRule(NamedTuple):
    """Limits that end a batch.

    It has `size` messages or `max_bytes` of bodies, its first message was taken `age_s` ago, or no
    message arrived for `silence_s`.
    """

    size: int
    age_s: float
    silence_s: float = 0.1
    max_bytes: int = NO_LIMIT


class Inbox:
    """Deliveries in order of arrival.

    It accepts every delivery. A source waits for room before it reads on, so a consumer that can't
    keep up slows down its brokers. The limits are exceeded at most by one read of each source.
    """

    def __init__(
        self,
        max_messages: int,
        max_bytes: int = NO_LIMIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._clock = clock
        self._deliveries: deque[Delivery] = deque()
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self.size_bytes = 0
        """The size of the bodies in the inbox."""
        self.damaged = 0
        """The number of spool elements that could not be read and were quarantined."""

    def __len__(self) -> int:
        return len(self._deliveries)

    @property
    def has_room(self) -> bool:
        """Whether the inbox is below both limits."""
        return len(self._deliveries) < self._max_messages and self.size_bytes < self._max_bytes

    def wait_for_room(self, timeout_s: float) -> bool:
        """Wait for room; returns whether there is any after at most `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: self.has_room, timeout_s)

    def put(self, deliveries: Sequence[Delivery]) -> None:
        """Append the deliveries, without waiting."""
        with self._changed:
            self._deliveries.extend(deliveries)
            self.size_bytes += size_of(deliveries)
            self._changed.notify_all()

    def take(self, rule: BatchRule, wait_s: float) -> list[Delivery]:
        """A batch, which is empty if no message arrived within `wait_s`.

        Raises:
            BaseException: the error that ended the thread of a source.
        """
        batch = self._next(rule.size, rule.max_bytes, wait_s)
        ready_at = self._clock() + rule.age_s
        while batch and (left_s := ready_at - self._clock()) > 0:
            count, size = rule.size - len(batch), rule.max_bytes - size_of(batch)
            if count <= 0 or size <= 0:
                break
            more = self._next(count, size, min(rule.silence_s, left_s))
            if not more:
                break
            batch += more
        return batch

    def held(self) -> Counter[str]:
        """The number of messages in the inbox by broker."""
        with self._changed:
            waiting = tuple(self._deliveries)
        return count_by_broker(waiting)

    def discard(self, session: Session) -> None:
        """Remove the messages of a lost session, since its broker redelivers them."""
        with self._changed:
            others = [delivery for delivery in self._deliveries if delivery.session is not session]
            self._deliveries = deque(others)
            self.size_bytes = size_of(others)
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Make the main loop end the program with this error."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def raise_failure(self) -> None:
        """Raise the error that ended the thread of a source, if any."""
        if self._failure:
            raise self._failure

    def _next(self, count: int, size_bytes: int, wait_s: float) -> list[Delivery]:
        """Up to `count` messages or `size_bytes`, but at least one if one arrives in time."""
        deliveries: list[Delivery] = []
        with self._changed:
            self._changed.wait_for(lambda: self._deliveries or self._failure, wait_s)
            self.raise_failure()
            bytes_left = size_bytes
            while self._deliveries and len(deliveries) < count and bytes_left > 0:
                deliveries.append(self._deliveries.popleft())
                bytes_left -= len(deliveries[-1].message.body)
            self.size_bytes -= size_bytes - bytes_left
            self._changed.notify_all()
        return deliveries
