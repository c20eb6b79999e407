"""Starts the sources, stores what they deliver, and stops in order; when a drain ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from sam_pipeline.consumer.core.loop import Loop, Stopped
from sam_pipeline.consumer.core.source import Source, delivering
from sam_pipeline.consumer.errors import SinkAway

SILENCE_S = 2.0
"""A drain ends when all sources were reached, and none has delivered anything for this time."""


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
        loop.run(drain.should_continue if drain else lambda news: True)
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

    def should_continue(self, news: bool) -> bool:
        """Whether more messages may arrive; `news`: some have just been stored."""
        now = self._clock()
        missing = [text for source in self._sources for text in source.missing()]
        was_missing = self._missing_since is not None
        if not missing:
            self._missing_since = None
        elif not was_missing:
            self._missing_since = now
        # Messages of the source that was reached last may be on their way.
        if news or (was_missing and not missing):
            self._quiet_since = now
        if now - self._quiet_since < SILENCE_S:
            return True
        if self._missing_since is None:
            return False
        if now - self._missing_since < self.timeout_s:
            return True
        self.unreached = missing
        return False
