"""Takes snapshots of the running daemon: its state, its inbox and its sources."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

from sam_pipeline.consumer.core.inbox import Inbox, count_by_broker, size_of
from sam_pipeline.consumer.core.silence import (
    KINDS,
    PROBE,
    Coverage,
    Gap,
    Silence,
    nothing_covered,
    silences,
)
from sam_pipeline.consumer.core.source import Source
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.monitoring.snapshot import BrokerState, Snapshot, process_start
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.net.certificate import CertificateLife, lives_of
from sam_pipeline.schema.program.log_output import dropped_lines
from sam_pipeline.schema.spool.queue import DirectoryQueue

MAX_NAMED = 100
"""The limit on silent classes and sites that are named; all are counted."""
READ_EVERY_S = 60.0
"""How often to read when certificates expire."""
COUNT_EVERY_S = 1.0
COUNT_SHARE = 0.05
"""The share of the time that may be spent counting, since a spool may have a million elements."""

STALLED_AFTER = timedelta(seconds=15)
"""A process that did not look for so long was suspended."""
CAUGHT_UP_AFTER = timedelta(seconds=2)
"""A broker that delivered nothing for so long has no more messages, as at the end of a drain."""


class Observer:
    """Takes snapshots without changing the daemon; safe to use from any thread."""

    def __init__(
        self,
        name: str,
        state: State,
        inbox: Inbox,
        sources: Sequence[Source],
        spools: Mapping[str, Path],
        config: ConsumerConfig | None = None,
    ) -> None:
        """`spools`: the directory of each source that is a spool, by the name of the source."""
        self.name = name
        self.state = state
        self._inbox = inbox
        self._sources = sources
        self._spools = spools
        self._spool_elements = dict.fromkeys(spools, 0)
        self._next_count_at = self._next_reading_at = time.monotonic()
        self._config = config
        self._certificates: tuple[CertificateLife, ...] = ()
        self._lookout: Lookout | None = None
        self._version = version("sam-pipeline")
        self._process_start = process_start(os.getpid()) or 0

    def snapshot(self) -> Snapshot:
        """The daemon at this moment."""
        state, held = self.state, self._held()
        silent: list[Silence] = []
        if self._config is not None and state.coverage is not None:
            with state.lock:
                received = dict(state.received)
            sites = state.probe_silences.sites
            silent += silences(self._config.silence, received, sites, state.coverage)
        silences_by_kind = Counter(silence.kind for silence in silent)
        silences_by_kind[PROBE] = state.probe_silences.silent
        with state.lock:
            counts = deepcopy(state.counts)
            counts += self._inbox.counted().printable_for(counts)
            for source in self._sources:  # also those that have delivered nothing
                counts.messages_by_broker[source.name] += 0
            messages_per_s, rows_per_s = state.rates()
            return Snapshot(
                name=self.name,
                version=self._version,
                pid=os.getpid(),
                process_start=self._process_start,
                since=state.since,
                written_at=datetime.now(UTC),
                turned_at=state.turned_at,
                ended_at=None,
                ended_because="",
                waiting_since=state.waiting_since,
                waiting_for=state.waiting_for,
                last_commit=state.last_commit,
                behind_since=state.behind_since,
                lag_s=state.lag_s(),
                held_messages=held.total(),
                held_bytes=self._inbox.size_bytes
                + sum(size_of(delivery.message) for delivery in state.pending),
                spool_elements=sum(self._spool_elements.values()),
                messages_per_s=messages_per_s,
                rows_per_s=rows_per_s,
                counts=counts,
                log_lines_dropped=dropped_lines(),
                brokers=tuple(
                    BrokerState(
                        broker=source.name,
                        messages=counts.messages_by_broker[source.name],
                        held=held[source.name],
                        missing=tuple(source.missing()),
                        spool_elements=self._spool_elements.get(source.name),
                        reconnects=state.reconnects[source.name]
                        + self._inbox.reconnects[source.name],
                    )
                    for source in self._sources
                ),
                open_dead_letters=state.open_dead_letters,
                requests={str(status): count for status, count in sorted(state.requests.items())},
                connections=sum(state.connections.values()),
                lags=deepcopy(state.lags),
                batches=deepcopy(state.batches),
                commits=deepcopy(state.commits),
                schema=state.schema,
                received=dict(state.received),
                coverage=state.coverage,
                silent={kind: silences_by_kind[kind] for kind in KINDS},
                silences=(*silent[:MAX_NAMED], *state.probe_silences.named),
                sites=state.probe_silences.sites,
                dead_letters_last_hour=state.dead_letters_last_hour(),
                dead_letters_by_minute=state.letters_by_minute(),
                certificates=self._certificates,
                unused_files=dict(state.unused_files),
                clock_offset_s=state.clock_offset.total_seconds(),
            )

    def resume(self, previous: Snapshot | None) -> None:
        """Continue where an earlier process ended, or begin anew."""
        now = datetime.now(UTC)
        coverage = previous and previous.coverage
        self.state.resume_letters(previous.dead_letters_by_minute if previous else {})
        resumed = nothing_covered(now)
        if coverage:
            resumed = Coverage(now, coverage.with_gap(Gap(coverage.until, now)).gaps)
        self._lookout = Lookout(self.state, self._inbox, self._sources, resumed)

    def look(self) -> None:
        """Note arrivals, and once a minute when certificates expire."""
        if self._lookout:
            self._lookout.look(datetime.now(UTC), self._held())
        if self._config and time.monotonic() >= self._next_reading_at:
            self._certificates = tuple(certificate_lives(self._config))
            self._next_reading_at = time.monotonic() + READ_EVERY_S

    def count_spools(self) -> None:
        """Count the elements in the spools if a count is due; large spools take seconds."""
        started = time.monotonic()
        if started < self._next_count_at:
            return
        held = self._held()
        for name, path in self._spools.items():
            with suppress(SpoolError):  # reported by the source, like the skipped; keep the count
                count = DirectoryQueue(path, skipped=lambda *_: None).count()
                self._spool_elements[name] = max(count - held[name], 0)
        ended = time.monotonic()
        self._next_count_at = ended + max(COUNT_EVERY_S, (ended - started) / COUNT_SHARE)

    def _held(self) -> Counter[str]:
        """Messages received and not yet acked by broker: in the inbox, or in the current batch."""
        return self._inbox.held() + count_by_broker(self.state.pending)


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


def certificate_lives(config: ConsumerConfig) -> Iterator[CertificateLife]:
    """The certificates that the configuration names; without files that can't be read."""
    ours = [config.certificate_file, config.door.certificate_file, config.metrics_certificate_file]
    ours += [table.certificate_file for table in config.broker]
    authorities = [config.ca_file, config.door.client_ca_file]
    authorities += [table.ca_file for table in config.broker]
    return lives_of(ours, authorities)
