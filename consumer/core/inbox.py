"""Deliveries, and the one bounded queue between all sources and the thread that loads."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from sam_pipeline.schema.messages.message import Message

NO_LIMIT = 2**62


class Session(Protocol):
    """The scope of acks: a connection, or a spool."""

    broker: str

    def ack(self, tokens: Sequence[Any]) -> None:
        """Tell the broker, later and in another thread, that the messages are stored.

        It never waits, nor fails because the connection is lost: then they are redelivered.
        """


class Delivery(NamedTuple):
    """A message, and how to acknowledge it: by its `token` in its session."""

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
    return sum(len(delivery.message.body) for delivery in deliveries)


def count_by_broker(deliveries: Sequence[Delivery]) -> Counter[str]:
    return Counter(delivery.session.broker for delivery in deliveries)


class BatchRule(NamedTuple):
    """A batch ends with `size` messages or `max_bytes` of bodies, `age_s` after its first message,
    and when no other message came for `silence_s`."""

    size: int
    age_s: float
    silence_s: float = 0.1
    max_bytes: int = NO_LIMIT


class Inbox:
    """Deliveries in order of arrival.

    It refuses none: a source that finds no room waits before it reads any further, which is how a
    consumer that can't keep up slows its brokers. So the bounds are exceeded by no more than each
    source reads at a time.
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
        """Of the bodies that wait here."""
        self.damaged = 0
        """Spool elements that could not be read and were put aside."""

    def __len__(self) -> int:
        return len(self._deliveries)

    @property
    def has_room(self) -> bool:
        return len(self._deliveries) < self._max_messages and self.size_bytes < self._max_bytes

    def wait_for_room(self, timeout_s: float) -> bool:
        """Whether there is room within `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: self.has_room, timeout_s)

    def put(self, deliveries: Sequence[Delivery]) -> None:
        """Never waits."""
        with self._changed:
            self._deliveries.extend(deliveries)
            self.size_bytes += size_of(deliveries)
            self._changed.notify_all()

    def take(self, rule: BatchRule, wait_s: float) -> list[Delivery]:
        """A batch; empty when nothing came within `wait_s`.

        Raises:
            BaseException: the error that ended one of the threads that deliver.
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
        """How many messages wait here, by broker."""
        with self._changed:
            waiting = tuple(self._deliveries)
        return count_by_broker(waiting)

    def discard(self, session: Session) -> None:
        """Forget the messages of a lost session: its broker redelivers them."""
        with self._changed:
            others = [delivery for delivery in self._deliveries if delivery.session is not session]
            self._deliveries = deque(others)
            self.size_bytes = size_of(others)
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Let the loading thread end the program with this error."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def raise_failure(self) -> None:
        """Raise the error that ended one of the threads that deliver, if one did."""
        if self._failure:
            raise self._failure

    def _next(self, count: int, size_bytes: int, wait_s: float) -> list[Delivery]:
        """Up to `count` messages or `size_bytes`; at least one, if one comes in time."""
        taken: list[Delivery] = []
        with self._changed:
            self._changed.wait_for(lambda: self._deliveries or self._failure, wait_s)
            self.raise_failure()
            left = size_bytes
            while self._deliveries and len(taken) < count and left > 0:
                taken.append(self._deliveries.popleft())
                left -= len(taken[-1].message.body)
            self.size_bytes -= size_bytes - left
            self._changed.notify_all()
        return taken
