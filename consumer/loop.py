"""The heart of the consumer: take a batch, load it, commit, then ack."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from consumer.inbox import Delivery, Inbox
from consumer.state import State
from schema.message import Message
from sql.errors import DatabaseAway
from sql.load import Loaded

SILENCE_S = 0.1
"""ActiveMQ may send nothing more before it gets acks: then a part of a batch must do."""
IDLE_S = 0.2
"""How often a loop without messages looks whether it shall end."""

Load = Callable[[Sequence[Message]], Loaded]
"""Everything is committed when it returns."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Stopped(Exception):
    """Told to stop while waiting: nothing of the batch in hand was committed."""


class Patience:
    """Waits for a database that is away: for ever, or in a drain for a while."""

    def __init__(
        self,
        stop: threading.Event,
        delays: Callable[[], Iterator[float]],
        give_up_after_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        state: State | None = None,
    ) -> None:
        self._state = state or State()
        self._stop = stop
        self._delays = delays
        self._give_up_after_s = give_up_after_s
        self._clock = clock

    def until_done(self, action: Callable[[], T]) -> T:
        """What `action` gives, once the database lets it.

        Raises:
            Stopped: while waiting.
            DatabaseAway: for longer than we wait.
        """
        began, told = self._clock(), False
        for delay_s in self._delays():
            try:
                result = action()
            except DatabaseAway as error:
                if self._over(began):
                    raise
                if not told:
                    logger.warning("%s; waiting, nothing is acked", error)
                told = True
                self._state.database_away(str(error))
            else:
                self._state.database_reached()
                if told:
                    logger.info("database back after %.0f s", self._clock() - began)
                return result
            if self._state.pause(self._stop, delay_s):
                break
        raise Stopped

    def _over(self, began: float) -> bool:
        limit_s = self._give_up_after_s
        return limit_s is not None and self._clock() - began >= limit_s


@dataclass(frozen=True)
class BatchRule:
    """A batch is full with `size` messages, and old `age_s` after its first one."""

    size: int
    age_s: float


class Loop:
    """Runs in the main thread; everything else only feeds its inbox and executes its acks."""

    def __init__(
        self,
        inbox: Inbox,
        load: Load,
        patience: Patience,
        rule: BatchRule,
        stop: threading.Event,
        between: Callable[[bool], None] = lambda news: None,
        state: State | None = None,
    ) -> None:
        self.state = state or State()
        self._between = between
        self._inbox = inbox
        self._load = load
        self._patience = patience
        self._rule = rule
        self._stop = stop

    def run(self, goes_on: Callable[[bool], bool] = lambda news: True) -> None:
        """Until told to stop, or until `goes_on` (asked after each batch and silence) says no.

        Raises:
            Stopped: while the database was away; the brokers keep the batch in hand.
            DatabaseAway: for longer than we wait.
        """
        news = True
        while goes_on(news) and not self._stop.is_set():
            self.state.turned()
            batch = self._inbox.take(self._rule.size, IDLE_S, SILENCE_S, self._rule.age_s)
            if batch:
                self._commit(batch)
            news = bool(batch)
            self._between(news)

    def _commit(self, batch: Sequence[Delivery]) -> None:
        self.state.taken(batch)
        messages = [delivery.message for delivery in batch]

        def attempt() -> Loaded:
            self._inbox.raise_failure()  # a source may break while the database is away
            return self._load(messages)

        loaded = self._patience.until_done(attempt)
        for delivery in batch:
            delivery.ack()
        self.state.committed(batch, loaded)
