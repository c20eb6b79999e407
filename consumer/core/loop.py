"""The main loop of the consumer: take a batch, store it, commit, then ack. When a drain ends."""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from sam_pipeline.consumer.core.inbox import (
    BatchRule,
    Delivery,
    Inbox,
    Outcome,
    Session,
    acknowledge,
)
from sam_pipeline.consumer.core.recovery import Attempts, UnstoredMessage
from sam_pipeline.consumer.core.source import Source, delivering
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.errors import SinkAway, SourcesFull

IDLE_S = 1.0
"""The longest turn without messages: then other work may be due."""
SILENCE_S = 2.0
"""A drain ends when all sources were reached, and none has delivered anything for this time."""
LOOK_S = 0.2
"""How often a drain looks whether all sources are reached."""

_WITHOUT_NUMBERS = re.compile(r"\d+")

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Stopped(Exception):
    """Stopped on request while waiting; the current batch was not committed."""


class Sink(Protocol):
    """Stores batches: in the database, or as a relay. `prepare` and `load` raise SinkAway if a
    retry may succeed.
    """

    def prepare(self) -> None:
        """Check that batches can be stored, before anything is acked.

        Raises:
            SamError: they can't, until someone fixes the problem.
        """

    def load(self, batch: Sequence[Delivery]) -> Outcome:
        """Store and commit the messages.

        Everything is committed when it returns. When it raises, a part may be: load all of it
        again, which changes nothing there. The outcome has an answer for each delivery that is
        `answering`.
        """

    def upkeep(self, news: bool) -> None:
        """Do a little other work between two batches; `news`: messages were stored."""
        return

    def finish(self) -> None:
        """Complete the other work after the last batch."""
        return


@dataclass(frozen=True)
class Loop:
    """Runs in the main thread; other threads only fill the inbox and send the acks."""

    inbox: Inbox
    rule: BatchRule
    sink: Sink
    patience: Patience
    attempts: Attempts
    unstored: UnstoredMessage
    state: State

    def prepare(self) -> None:
        """Prepare the sink, and store the message that it last refused to store, if there is one.

        Raises:
            SinkAway: a retry may succeed.
            SamError: it can't, until someone fixes the problem.
        """
        self.sink.prepare()
        if self.unstored.delivery:
            batch = [self.unstored.delivery]
            part, outcome = self._store(batch)
            self.state.committed(part, outcome.counts)
            self.attempts.end(batch)

    def run(self, wait_s: Callable[[bool], float]) -> None:
        """Store batches until stopped, or until `wait_s` returns 0.

        `wait_s` is called before each turn, and returns for how long to wait for messages; its
        argument is whether the last turn stored a batch, or a source is paused.

        Raises:
            Stopped: while the sink was away; the brokers keep the current batch.
            SinkAway: the sink was away for longer than the patience lasts.
        """
        news, stop = True, self.patience.stop
        while (longest_s := wait_s(news)) and not stop.is_set():
            self.state.turned()
            batch = self.inbox.take(self.rule, longest_s, stop)
            news = bool(batch) or self.inbox.any_paused
            if batch:
                self.state.taken(batch)
                for part in self.attempts.parts(batch):
                    # Returns when the part is committed, however long the sink is away.
                    part, outcome = self.patience.until_done(partial(self._store, part))
                    self.attempts.end(part)
                    for name, pause_s in outcome.pauses.items():
                        self.inbox.pause(name, pause_s)
                    acknowledge(part, outcome.answers)
                    self.state.committed(part, outcome.counts)
            self.sink.upkeep(bool(batch))

    def _store(self, batch: Sequence[Delivery]) -> tuple[Sequence[Delivery], Outcome]:
        """Store and commit the batch, without the messages of sources that are full.

        Raises:
            SinkAway: not all of it was committed.
        """
        self.inbox.raise_failure()  # a source may have failed while the sink was away
        if not batch:
            return batch, Outcome()
        began = time.perf_counter()
        try:
            outcome = self.sink.load(batch)
        except SinkAway:
            self.unstored.keep(batch)
            raise
        except SourcesFull as full:
            return self._store(self._given_back(batch, full))
        self.unstored.forget()
        self.state.stored(time.perf_counter() - began)
        return batch, outcome

    def _given_back(self, batch: Sequence[Delivery], full: SourcesFull) -> list[Delivery]:
        """Leave messages with their brokers and senders; returns the others."""
        stays: list[Delivery] = []
        gone: list[Delivery] = []
        tokens: dict[Session, list[Any]] = {}
        for delivery in batch:
            message, session, token = delivery
            # A connection can't ack one message without those before it.
            is_full = session.broker in full.sources and not session.answers
            if is_full or id(message) in full.messages:
                tokens.setdefault(session, []).append(token)
                gone.append(delivery)
            else:
                stays.append(delivery)
        for session, given_back in tokens.items():
            session.give_back(given_back)
            if not session.answers:
                if session.broker not in self.state.full_sources:
                    logger.error("broker %s is not read for now: %s", session.broker, full)
                self.state.full_sources[session.broker] = str(full)
        self.state.dropped(gone)
        return stays


@dataclass(frozen=True)
class Patience:
    """Waits for a sink that is away: forever, or in a drain for a limited time."""

    stop: threading.Event
    delays: Callable[[], Iterator[float]]
    state: State
    give_up_after_s: float = math.inf
    clock: Callable[[], float] = time.monotonic

    def until_done(self, action: Callable[[], T]) -> T:
        """Repeat `action` until it succeeds, and return its result.

        Raises:
            Stopped: `stop` was set while waiting.
            SinkAway: the sink was away for too long.
        """
        began, reported, delays = self.clock(), "", None
        while True:
            try:
                result = action()
            except SinkAway as error:
                if self.clock() - began >= self.give_up_after_s:
                    raise
                # Not again for the name of another temporary file, as on a disk that is full.
                if _WITHOUT_NUMBERS.sub("", str(error)) != _WITHOUT_NUMBERS.sub("", reported):
                    level = logging.ERROR if error.needs_action else logging.WARNING
                    logger.log(level, "%s; waiting, nothing is acked", error)
                reported = str(error)
                self.state.cannot_commit(reported)
            else:
                self.state.can_commit()
                if reported:
                    logger.info("continuing after %.0f s", self.clock() - began)
                return result
            delays = delays or self.delays()
            if self.state.pause(self.stop, next(delays)):
                raise Stopped


def consume(loop: Loop, sources: Sequence[Source], drain: Drain | None = None) -> None:
    """Store messages until the loop is stopped, or until the drain has stored everything.

    Raises:
        SamError: from `sink.prepare`; unless the sink was away, before any broker is read.
        SinkAway: in a drain, the sink was away for longer than its timeout.
    """
    state, inbox, is_prepared = loop.state, loop.inbox, False
    with suppress(SinkAway):
        loop.prepare()
        state.can_commit()  # a source that answers its senders need not refuse the first ones
        is_prepared = True
    with delivering(sources, inbox), suppress(Stopped):
        if not is_prepared:
            # While the sink is away, sources only make subscriptions that do not exist yet.
            loop.patience.until_done(loop.prepare)
        loop.run(drain.wait_s if drain else lambda news: IDLE_S)
        loop.sink.finish()
    inbox.raise_failure()
    state.count(inbox.take_counts())
    state.reconnects += inbox.reconnects
    inbox.reconnects.clear()


class Drain:
    """Decides when to stop; afterwards `unreached` lists the brokers that were not reached."""

    def __init__(
        self,
        sources: Sequence[Source],
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.unreached: list[str] = []
        self._sources = sources
        self.timeout_s = timeout_s
        self._clock = clock
        self._quiet_since = clock()
        self._missing_since: float | None = clock()

    def wait_s(self, news: bool) -> float:
        """For how long messages may still arrive; `news`: some have just been stored."""
        now = self._clock()
        missing = [text for source in self._sources for text in source.missing()]
        was_missing = self._missing_since is not None
        if not (missing and was_missing):
            self._missing_since = now if missing else None
        # Messages of the source that was reached last may be on their way.
        if news or (was_missing and not missing):
            self._quiet_since = now
        if (left_s := self._quiet_since + SILENCE_S - now) > 0:
            return min(LOOK_S if missing else IDLE_S, left_s)
        if self._missing_since is None or now - self._missing_since >= self.timeout_s:
            self.unreached = missing
            return 0.0
        return LOOK_S
