"""Observes the running daemon, and reports its state: to its file, systemd and the metrics port."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from copy import deepcopy
from dataclasses import replace
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
from sam_pipeline.consumer.core.state import NOT_TRIED, State
from sam_pipeline.consumer.errors import NoState
from sam_pipeline.consumer.monitoring.snapshot import (
    BrokerState,
    Snapshot,
    process_start,
    read_state,
    state_path,
    write_state,
)
from sam_pipeline.consumer.process.signals import StopRequest
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.net.certificate import CertificateLife, lives_of
from sam_pipeline.schema.program.log_output import dropped_lines
from sam_pipeline.schema.program.systemd import Notifier
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

TICK_S = 1.0
FIRST_TICK_S = 0.1
"""Until READY is sent, for which systemd waits before it starts other services."""
STATUS_TICKS = 5
"""A new state is sent to systemd at once, new numbers every STATUS_TICKS ticks."""
END_S = 2.0
"""The time limit for the thread to end, since it may hang on a disk."""

logger = logging.getLogger(__name__)


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
            arrived = [now]  # or else up to when everything sent through a broker has arrived
            for broker in (source.name for source in self._sources):
                committed_at, sent_at = self._state.newest.get(broker, (None, None))
                if held[broker] or self._inbox.paused_s(broker):
                    arrived.append(sent_at or self._coverage.until)
                elif sent_at and committed_at and now - committed_at < CAUGHT_UP_AFTER:
                    arrived.append(sent_at)
            self._coverage = self._coverage.up_to(min(arrived))
        self._state.coverage = self._coverage


@contextmanager
def reporting(observer: Observer, request: StopRequest, config: ConsumerConfig) -> Iterator[None]:
    """Report about once a second inside the block, and at its end how it ended."""
    try:
        previous = read_state([config.state_directory], config.process_name)
    except NoState:
        previous = None
    observer.resume(previous)
    with ExitStack() as stack:
        notifier = stack.enter_context(closing(Notifier(config.notify_socket)))
        if config.metrics_address:
            from sam_pipeline.consumer.monitoring.metrics import MetricsPort, Readers

            readers = Readers(config.metrics_tls_files, config.metrics_token_file)
            port = MetricsPort(config.metrics_address, observer.snapshot, readers)
            stack.enter_context(closing(port))
        stack.enter_context(Reporter(observer, request, config.state_directory, notifier))
        yield


class Reporter:
    """Reports inside its block in a separate thread, even if the main loop is stuck."""

    def __init__(
        self, observer: Observer, request: StopRequest, directory: Path, notifier: Notifier
    ) -> None:
        self._observer = observer
        self._request = request
        self._directory = directory
        self._notifier = notifier
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._report, name="reporter", daemon=True)
        self._ticks = self._turns = 0
        self._reported: tuple[str, int] | None = None
        """The state last sent to systemd, and the number of its STATUS_TICKS; None before READY."""
        self._end_announced = False
        self._write_problem = ""

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Report how the daemon ended, unless it stops only to reload."""
        self._closing.set()
        self._thread.join(END_S)
        self._announce_end()
        reason = "" if error is None else str(error) or type(error).__name__
        if reason or not self._request.reloading:
            now = datetime.now(UTC)
            self._write(replace(self._observer.snapshot(), ended_at=now, ended_because=reason))

    def _report(self) -> None:
        while not self._closing.wait(TICK_S if self._reported else FIRST_TICK_S):
            self.tick()

    def tick(self) -> None:
        """Write the state file and notify systemd."""
        self._observer.count_spools()
        self._observer.look()
        snapshot = self._observer.snapshot()
        self._write(snapshot)
        self._ticks += 1
        health = snapshot.health(snapshot.written_at)
        report = (health.state, self._ticks // STATUS_TICKS)
        if self._request.stop.is_set():
            self._announce_end()
        elif snapshot.waiting_for != NOT_TRIED and report != self._reported:
            facts = [f"{snapshot.held_messages} messages held"]
            if any(broker.spool_elements is not None for broker in snapshot.brokers):
                facts.append(f"{snapshot.spool_elements} elements in spools")
            if snapshot.lag_s is not None:
                facts.append(f"lag {snapshot.lag_s:.1f} s")
            facts.append(f"{snapshot.messages_per_s:.1f} messages/s")
            facts += snapshot.counts.texts()
            ready = ["READY=1"] if self._reported is None else []
            self._notifier.send(*ready, f"STATUS={health}; {', '.join(facts)}")
            self._reported = report
        if self._observer.state.turns != self._turns:
            self._turns = self._observer.state.turns
            self._notifier.send("WATCHDOG=1")

    def _announce_end(self) -> None:
        if self._end_announced:
            return
        self._end_announced = True
        if self._request.reloading:
            microseconds = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            self._notifier.send("RELOADING=1", f"MONOTONIC_USEC={microseconds}")
        else:
            self._notifier.send("STOPPING=1", "STATUS=stopping: committing the current batch")

    def _write(self, snapshot: Snapshot) -> None:
        try:
            write_state(self._directory, snapshot)
            self._write_problem = ""
        except OSError as error:
            problem = f"{state_path(self._directory, snapshot.name)}: {error.strerror}"
            if problem != self._write_problem:
                logger.warning(
                    "%s: `sam-consume status` will be out of date; if its directory was removed,"
                    " restart this process",
                    problem,
                )
            self._write_problem = problem


def certificate_lives(config: ConsumerConfig) -> Iterator[CertificateLife]:
    """The certificates that the configuration names; without files that can't be read."""
    ours = [config.certificate_file, config.door.certificate_file, config.metrics_certificate_file]
    ours += [table.certificate_file for table in config.broker]
    authorities = [config.ca_file, config.door.client_ca_file]
    authorities += [table.ca_file for table in config.broker]
    return lives_of(ours, authorities)
