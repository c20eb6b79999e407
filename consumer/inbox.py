"""Deliveries, and the one bounded queue between all sources and the thread that loads."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from schema.message import Message


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message, the broker it came from, and its own ack.

    `session` is what the ack is valid in: a connection, or the spool. `ack` never waits and
    never fails because the session is gone; then the broker delivers the message again.
    """

    message: Message
    broker: str
    session: object
    ack: Callable[[], None]


class Inbox:
    """Deliveries in order of arrival; full means that the sources wait.

    Room for everything the brokers may have in flight (their prefetch) keeps a listener from
    ever waiting while the database is away.
    """

    def __init__(self, capacity: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity = capacity
        self._clock = clock
        self._deliveries: deque[Delivery] = deque()
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self.damaged = 0
        """Spool elements that could not be read and were put aside."""

    def put(self, delivery: Delivery, timeout_s: float) -> bool:
        """Whether there was room in time."""
        with self._changed:
            if not self._changed.wait_for(self._has_room, timeout_s):
                return False
            self._deliveries.append(delivery)
            self._changed.notify_all()
            return True

    def take(self, limit: int, wait_s: float, silence_s: float, age_s: float) -> list[Delivery]:
        """A batch: `limit` deliveries, or fewer after silence or when the first one ages.

        Empty when nothing came within `wait_s`.

        Raises:
            BaseException: what ended one of the threads that deliver.
        """
        batch = self._next(limit, wait_s)
        ready_at = self._clock() + age_s
        while batch and len(batch) < limit and (left_s := ready_at - self._clock()) > 0:
            more = self._next(limit - len(batch), min(silence_s, left_s))
            if not more:
                break
            batch += more
        return batch

    def held(self) -> tuple[Counter[str], int]:
        """How many messages wait here, by broker, and all their bytes."""
        with self._changed:
            waiting = tuple(self._deliveries)
        return Counter(each.broker for each in waiting), sum(len(e.message.body) for e in waiting)

    def discard(self, session: object) -> None:
        """Forget what a lost session delivered: its broker delivers that again."""
        with self._changed:
            kept = [each for each in self._deliveries if each.session is not session]
            self._deliveries = deque(kept)
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

    def _has_room(self) -> bool:
        return len(self._deliveries) < self._capacity

    def _next(self, limit: int, wait_s: float) -> list[Delivery]:
        with self._changed:
            self._changed.wait_for(lambda: self._deliveries or self._failure, wait_s)
            self.raise_failure()
            count = min(limit, len(self._deliveries))
            taken = [self._deliveries.popleft() for _ in range(count)]
            self._changed.notify_all()
            return taken
