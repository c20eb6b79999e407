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
    """What acks are valid in: a connection, or a spool; `broker` is where it leads to."""

    broker: str

    def ack(self, tokens: Sequence[Any]) -> None:
        """Tell the broker, later and on another thread, that these are stored.

        Never waits, and never fails because the connection is gone; then they come again.
        """


class Delivery(NamedTuple):
    """A message, and how to acknowledge it: by a `token` of its own in its session."""

    message: Message
    session: Session
    token: Any


def acknowledge(batch: Sequence[Delivery]) -> None:
    """All deliveries of a batch, in order."""
    by_session: dict[Session, list[Any]] = {}
    for delivery in batch:
        by_session.setdefault(delivery.session, []).append(delivery.token)
    for session, tokens in by_session.items():
        session.ack(tokens)


class BatchRule(NamedTuple):
    """A batch is full with `size` messages or `max_bytes` of bodies, old `age_s` after its first
    message, and over when no other one came for `silence_s`."""

    size: int
    age_s: float
    silence_s: float = 0.1
    max_bytes: int = NO_LIMIT


class Inbox:
    """Deliveries in order of arrival.

    It takes what it is given: a source that finds no room waits before it reads any further, which
    is how a consumer that can't keep up slows its brokers. So the bounds are exceeded by what one
    source reads at a time, and by no more.
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
        """Whether there is room, at the latest after so long."""
        with self._changed:
            return self._changed.wait_for(lambda: self.has_room, timeout_s)

    def put(self, deliveries: Sequence[Delivery]) -> None:
        """Never waits."""
        with self._changed:
            self._deliveries.extend(deliveries)
            self.size_bytes += _size_of(deliveries)
            self._changed.notify_all()

    def take(self, rule: BatchRule, wait_s: float) -> list[Delivery]:
        """A batch; empty when nothing came within `wait_s`.

        Raises:
            BaseException: what ended one of the threads that deliver.
        """
        batch = self._next(rule.size, rule.max_bytes, wait_s)
        ready_at = self._clock() + rule.age_s
        while batch and (left_s := ready_at - self._clock()) > 0:
            count, size = rule.size - len(batch), rule.max_bytes - _size_of(batch)
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
        return Counter(each.session.broker for each in waiting)

    def take_damaged(self) -> int:
        """How many elements were put aside since this was asked last."""
        damaged, self.damaged = self.damaged, 0
        return damaged

    def discard(self, session: Session) -> None:
        """Forget what a lost session delivered: its broker delivers that again."""
        with self._changed:
            kept = [each for each in self._deliveries if each.session is not session]
            self._deliveries = deque(kept)
            self.size_bytes = _size_of(kept)
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Let the loading thread end the program with this error."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def raise_failure(self) -> None:
        """Raise what ended one of the threads that deliver, if anything did."""
        if self._failure:
            raise self._failure

    def _next(self, count: int, size_bytes: int, wait_s: float) -> list[Delivery]:
        """What is there, up to so many messages or bytes; at least one, if one comes in time."""
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


def _size_of(deliveries: Sequence[Delivery]) -> int:
    return sum(len(delivery.message.body) for delivery in deliveries)
