"""The heart of the consumer: take a batch, store it, commit, then ack."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sam_pipeline.consumer.core.attempts import Attempts
from sam_pipeline.consumer.core.inbox import BatchRule, Delivery, Inbox, acknowledge
from sam_pipeline.consumer.core.sink import Sink
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.core.tally import Tally
from sam_pipeline.consumer.errors import SinkAway

IDLE_S = 0.2
"""How often a loop without messages checks whether to stop."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Stopped(Exception):
    """Asked to stop while waiting: nothing of the present batch was committed."""


@dataclass(frozen=True)
class Loop:
    """Runs in the main thread; all others only fill its inbox and execute its acks."""

    inbox: Inbox
    rule: BatchRule
    sink: Sink
    patience: Patience
    attempts: Attempts
    state: State

    def run(self, stop: threading.Event, goes_on: Callable[[bool], bool]) -> None:
        """Until `stop`, or until `goes_on` says no, asked after each batch and each silence.

        Raises:
            Stopped: while the sink was away; the brokers keep the present batch.
            SinkAway: for longer than the patience lasts.
        """
        news = True
        while goes_on(news) and not stop.is_set():
            self.state.turned()
            batch = self.inbox.take(self.rule, IDLE_S)
            self.state.taken(batch)
            for part in self.attempts.parts(batch):
                outcome = self._commit(part)
                acknowledge(part)
                self.state.committed(part, outcome)
            news = bool(batch)
            self.sink.upkeep(news)

    def _commit(self, batch: Sequence[Delivery]) -> Tally:
        """Store the batch, however long it takes."""
        poison = self.attempts.poison(batch)

        def attempt() -> Tally:
            self.inbox.raise_failure()  # a source may break while the sink is away
            self.attempts.begin(batch)
            try:
                return self.sink.load(batch, poison)
            except SinkAway:
                self.attempts.rest()  # if we die while we only wait, the batch did not cause it
                raise

        outcome = self.patience.until_done(attempt)
        self.attempts.end(batch)
        return outcome


@dataclass(frozen=True)
class Patience:
    """Waits for a sink that is away: for ever, or in a drain for a while."""

    stop: threading.Event
    delays: Callable[[], Iterator[float]]
    state: State
    give_up_after_s: float = math.inf
    clock: Callable[[], float] = time.monotonic

    def until_done(self, action: Callable[[], T]) -> T:
        """The result of `action`, once it succeeds.

        Raises:
            Stopped: while waiting.
            SinkAway: it was away for too long.
        """
        began, reported = self.clock(), ""
        for delay_s in self.delays():
            try:
                result = action()
            except SinkAway as error:
                if self.clock() - began >= self.give_up_after_s:
                    raise
                if str(error) != reported:
                    level = logging.ERROR if error.needs_action else logging.WARNING
                    logger.log(level, "%s; waiting, nothing is acked", error)
                reported = str(error)
                self.state.cannot_commit(reported)
            else:
                self.state.can_commit()
                if reported:
                    logger.info("going on after %.0f s", self.clock() - began)
                return result
            if self.state.pause(self.stop, delay_s):
                break
        raise Stopped
