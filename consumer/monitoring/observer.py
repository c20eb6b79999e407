"""Puts together what a daemon's parts know of themselves, as a snapshot."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.core.source import Source
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.monitoring.snapshot import BrokerState, Snapshot
from sam_pipeline.consumer.monitoring.state_file import process_start
from sam_pipeline.consumer.process.signals import Wishes
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.program.log_fold import dropped_lines
from sam_pipeline.schema.spool.queue import DirectoryQueue

COUNT_S = 1.0
COUNT_SHARE = 0.05
"""At most this part of the time is spent on counting elements: a spool may hold a million."""


@dataclass(frozen=True)
class Watched:
    """The daemon `name`, and its parts that have something to tell."""

    name: str
    state: State
    sources: Sequence[Source]
    inbox: Inbox
    wishes: Wishes


class Speaker:
    """Asks the state, the sources and the inbox."""

    def __init__(
        self,
        watched: Watched,
        elements: ElementCounts,
    ) -> None:
        self.watched = watched
        self._elements = elements
        self._pid = os.getpid()
        self._process_start = process_start(self._pid) or 0
        self._version = version("sam-pipeline")

    def say(self) -> Snapshot:
        standing = self.watched.state.standing()
        tally, inbox = standing.tally, self.watched.inbox
        held = inbox.held() + Counter(standing.in_hand)
        brokers = tuple(self._broker(each, tally.messages, held) for each in self.watched.sources)
        return Snapshot(
            name=self.watched.name,
            version=self._version,
            pid=self._pid,
            process_start=self._process_start,
            since=_moment(standing.since),
            written_at=datetime.now(UTC),
            turned_at=_moment(standing.turned_at),
            ended_at=None,
            ended_because="",
            waiting_since=_moment(standing.waiting.since) if standing.waiting else None,
            waiting_for=standing.waiting.reason if standing.waiting else "",
            last_commit=_moment(standing.last_commit) if standing.last_commit else None,
            behind_since=_moment(standing.behind_since) if standing.behind_since else None,
            lag_s=standing.lag_s,
            held_messages=held.total(),
            held_bytes=inbox.size_bytes + standing.in_hand_bytes,
            spool_elements=sum(each.spool_elements or 0 for each in brokers),
            messages_per_s=standing.messages_per_s,
            rows_per_s=standing.rows_per_s,
            messages=tally.messages.total(),
            rows=tally.rows,
            checks=tally.checks,
            damaged_elements=tally.damaged + inbox.damaged,
            log_lines_dropped=dropped_lines(),
            brokers=brokers,
            rows_by_class=dict(tally.rows_by_class),
            dead_letters=dict(tally.dead_letters),
            open_dead_letters=standing.open_dead_letters,
            ignored_keys=dict(tally.ignored_keys),
        )

    def count_spools(self) -> None:
        """Not at every question: it may take a while."""
        in_hand = Counter(self.watched.state.standing().in_hand)
        self._elements.refresh(self.watched.inbox.held() + in_hand)

    def _broker(
        self, source: Source, taken: Mapping[str, int], held: Mapping[str, int]
    ) -> BrokerState:
        name = source.name
        waiting = self._elements.waiting.get(name)
        return BrokerState(name, taken[name], held[name], tuple(source.missing()), waiting)


class ElementCounts:
    """How many elements `waiting` has for each spool: there, and not in hand."""

    def __init__(
        self, spools: Mapping[str, Path], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.waiting: dict[str, int] = dict.fromkeys(spools, 0)
        self._spools = spools
        self._clock = clock
        self._next = clock()

    def refresh(self, held: Mapping[str, int]) -> None:
        """Count again, if it is time; what can't be read keeps its number."""
        began = self._clock()
        if began < self._next:
            return
        for name, path in self._spools.items():
            with suppress(SpoolError):  # the source meets it, too, and has its say
                self.waiting[name] = max(DirectoryQueue(path).count() - held[name], 0)
        ended = self._clock()
        self._next = ended + max(COUNT_S, (ended - began) / COUNT_SHARE)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
