"""The end of a drain: all sources were reached, and none has delivered anything for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sam_pipeline.consumer.core.source import Source

SILENCE_S = 2.0


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
