"""Notes up to when everything that was sent to the daemon has arrived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.core.source import Source
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.silence.coverage import Coverage, Gap

STALLED_AFTER = timedelta(seconds=15)
"""A process that did not look for so long was suspended."""
CAUGHT_UP_AFTER = timedelta(seconds=2)
"""A broker that delivered nothing for so long has no more messages, as at the end of a drain."""


class Lookout:
    """Keeps the coverage of a daemon; `look` is called about once a second.

    Nothing is known of the time in which a broker is not connected, or nothing can be committed.
    While messages wait, everything has arrived that was sent before the newest one committed: a
    broker delivers in order, so a backlog does not count as silence.
    """

    def __init__(
        self, state: State, inbox: Inbox, sources: Sequence[Source], coverage: Coverage
    ) -> None:
        self._state = state
        self._inbox = inbox
        self._sources = sources
        self._coverage = coverage
        self._looked_at = coverage.until
        self._blind_since: datetime | None = None

    def look(self, now: datetime, held: Counter[str]) -> None:
        """Note the covered times; `held`: the messages of each broker that are not yet acked."""
        stalled = now - self._looked_at > STALLED_AFTER
        is_blind = self._state.waiting_since is not None or any(
            source.missing() for source in self._sources
        )
        if self._blind_since is None and (stalled or is_blind):
            self._blind_since = self._looked_at
        self._looked_at = now
        if not is_blind:
            if self._blind_since is not None:
                self._coverage = self._coverage.with_gap(Gap(self._blind_since, now))
                self._blind_since = None
            arrived = [self._arrived(source.name, now, held) for source in self._sources]
            self._coverage = self._coverage.up_to(min(arrived, default=now))
        self._state.coverage = self._coverage

    def _arrived(self, broker: str, now: datetime, held: Counter[str]) -> datetime:
        """Up to when everything sent through the broker has arrived."""
        committed_at, sent_at = self._state.newest.get(broker, (None, None))
        if held[broker] or self._inbox.paused_s(broker):
            return min(sent_at or self._coverage.until, now)
        if sent_at and committed_at and now - committed_at < CAUGHT_UP_AFTER:
            return min(sent_at, now)
        return now
