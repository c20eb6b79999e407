"""The heart of the consumer: take a batch, load it, commit, then ack."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

from sam_pipeline.consumer.core.attempts import Attempts
from sam_pipeline.consumer.core.inbox import BatchRule, Delivery, Inbox, acknowledge
from sam_pipeline.consumer.core.state import State
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.sql.errors import DatabaseAway, DatabaseRefused
from sam_pipeline.sql.loading.load import Loaded

IDLE_S = 0.2
"""How often a loop without messages looks whether it shall end."""

Load = Callable[[Sequence[Delivery], Collection[str]], Loaded]
"""Stores the messages of a batch; those with the ids given are poison, to be kept unread.
Everything is committed when it returns."""

AWAY = (DatabaseAway, SpoolError)
"""What we store to can't be reached, or is full: the same again later."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Stopped(Exception):
    """Told to stop while waiting: nothing of the batch in hand was committed."""


class Patience:
    """Waits for a database that is away, or a full disk: for ever, or in a drain for a while."""

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
        """What `action` gives, once it can be done.

        Raises:
            Stopped: while waiting.
            DatabaseAway, SpoolError: for longer than we wait.
        """
        began, told = self._clock(), ""
        for delay_s in self._delays():
            try:
                result = action()
            except AWAY as error:
                if self._over(began):
                    raise
                if str(error) != told:
                    _tell(error)
                told = str(error)
                self._state.cannot_commit(told)
            else:
                self._state.can_commit()
                if told:
                    logger.info("going on after %.0f s", self._clock() - began)
                return result
            if self._state.pause(self._stop, delay_s):
                break
        raise Stopped

    def _over(self, began: float) -> bool:
        limit_s = self._give_up_after_s
        return limit_s is not None and self._clock() - began >= limit_s


def _tell(error: Exception) -> None:
    level = logging.ERROR if isinstance(error, DatabaseRefused) else logging.WARNING
    logger.log(level, "%s; waiting, nothing is acked", error)


class Loop:
    """Runs in the main thread; everything else only feeds its inbox and executes its acks."""

    def __init__(
        self,
        inbox: Inbox,
        load: Load,
        patience: Patience,
        attempts: Attempts,
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
        self._attempts = attempts
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
            batch = self._inbox.take(self._rule, IDLE_S)
            self.state.taken(batch)
            for part in self._attempts.parts(batch) if batch else ():
                self._commit(part)
            news = bool(batch)
            self._between(news)

    def _commit(self, batch: Sequence[Delivery]) -> None:
        poison = self._attempts.poison(batch)

        def attempt() -> Loaded:
            self._inbox.raise_failure()  # a source may break while the database is away
            self._attempts.begin(batch)
            try:
                return self._load(batch, poison)
            except AWAY:
                self._attempts.rest()  # a death while we only wait is not its fault
                raise

        loaded = self._patience.until_done(attempt)
        self._attempts.end(batch)
        acknowledge(batch)
        self.state.committed(batch, loaded)
