"""The process of some consumers: reads all their connections at once, and counts."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NamedTuple, Optional

from sam_pipeline.publisher.load_test.counting import BUCKETS, Arrivals, bucket
from sam_pipeline.publisher.load_test.plan import EMPTY_S, LEAVE_S, SET_UP_S, SLOW_PER_S, LoadCell
from sam_pipeline.publisher.load_test.wire import Consumer, LoadArrival, LoadRoute
from sam_pipeline.publisher.load_test.workers import (
    DONE,
    EMPTY,
    END,
    GO,
    PROGRESS,
    PROGRESS_S,
    READY,
)
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.session import SessionLost

READS_PER_TURN = 4
"""So often a connection is read before the others get their turn."""
SLOW_BYTES, SLOW_TLS_BYTES = 4096, 16384
"""A slow consumer reads in small pieces; over TLS no piece of a record may remain unread."""
SLOW_TICK_S = 0.01
"""How often it looks whether it may read again."""
EMPTY_QUIET_S = 1.0
"""A queue is empty when nothing has arrived for so long."""


class LagCounts(NamedTuple):
    """Durations by bucket of `histogram`, and the longest one, in µs."""

    counts: dict[int, int]
    longest_us: int


class ReceivingReport(NamedTuple):
    """What the consumers of a process received; `arrivals` and `by_bin` are by consumer.

    `lags` has the time from sending to arrival by interval of the time since the start, then by
    bucket. `to_broker` and `from_broker` are its parts, if the broker states a time.
    """

    server: str
    arrivals: dict[int, Arrivals]
    by_bin: dict[int, dict[int, int]]
    lags: dict[int, LagCounts]
    to_broker: LagCounts
    from_broker: LagCounts
    last_s: float
    bytes: int
    foreign: int
    wall_s: float
    processor_s: float
    problems: Sequence[str]


class _Watch:
    """Counts the arrivals of all consumers of this process."""

    def __init__(self, cell: LoadCell, cell_number: int, consumers: Sequence[int], bin_s: float):
        shares = [cell.share(number) for number in range(cell.producers)]
        self.arrivals = {number: Arrivals(shares) for number in consumers}
        self.by_bin: dict[int, dict[int, int]] = {number: {} for number in consumers}
        self.counts: dict[int, int] = {}
        """By interval and bucket: `interval * BUCKETS + bucket`."""
        self.longest_us: dict[int, int] = {}
        self.parts: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self.longest_parts_us = [0, 0]
        self.foreign = 0
        self.start_us = 0
        self.last_us = 0
        self._cell_number = cell_number
        self._bin_us = int(bin_s * 1e6)

    def note(self, consumer: int, arrival: LoadArrival) -> None:
        cell, producer, number, sent_us, broker_us, arrived_us = arrival
        if cell != self._cell_number:
            self.foreign += 1
            return
        try:
            self.arrivals[consumer].add(producer, number)
        except IndexError:
            self.foreign += 1
            return
        self.last_us = arrived_us
        at = max(0, arrived_us - self.start_us) // self._bin_us
        by_bin = self.by_bin[consumer]
        by_bin[at] = by_bin.get(at, 0) + 1
        lag_us = max(0, arrived_us - sent_us)
        key = at * BUCKETS + bucket(lag_us)
        self.counts[key] = self.counts.get(key, 0) + 1
        if lag_us > self.longest_us.get(at, -1):
            self.longest_us[at] = lag_us
        if broker_us:
            # The broker's time has no fractions of a ms, so ours must not have them either.
            to_us = max(0, broker_us - sent_us // 1000 * 1000)
            from_us = max(0, arrived_us - broker_us)
            for part, duration_us in enumerate((to_us, from_us)):
                key = bucket(duration_us)
                self.parts[part][key] = self.parts[part].get(key, 0) + 1
                if duration_us > self.longest_parts_us[part]:
                    self.longest_parts_us[part] = duration_us

    def lags(self) -> dict[int, LagCounts]:
        found = {at: LagCounts({}, longest) for at, longest in self.longest_us.items()}
        for key, count in self.counts.items():
            found[key // BUCKETS].counts[key % BUCKETS] = count
        return found


def receive(
    pipe: Connection,
    route: LoadRoute,
    cell: LoadCell,
    cell_number: int,
    consumers: Sequence[int],
    bin_s: float,
) -> None:
    """Subscribe, count what arrives until END, report, and delete the subscriptions."""
    deadline = Deadline.after(SET_UP_S)
    watch = _Watch(cell, cell_number, consumers, bin_s)
    opened: dict[int, Consumer] = {}
    try:
        for number in consumers:
            opened[number] = _consumer(route, cell, (cell_number, number), watch, deadline)
        pipe.send((READY, next(iter(opened.values())).server))
        report = _receive_all(pipe, cell, watch, opened)
    except (EOFError, OSError):  # the tool was killed: finish its work
        report = None
    finally:
        ends = Deadline.after(LEAVE_S)
        left = [consumer.leave(ends) for consumer in opened.values()]
    if report is not None:
        pipe.send((DONE, report._replace(problems=[*report.problems, *filter(None, left)])))


def _consumer(
    route: LoadRoute, cell: LoadCell, numbers: tuple[int, int], watch: _Watch, deadline: Deadline
) -> Consumer:
    number = numbers[1]

    def arrived(arrival: LoadArrival) -> None:
        watch.note(number, arrival)

    if cell.has_slow_consumer and number == 0:
        piece = SLOW_TLS_BYTES if route.target.broker.tls else SLOW_BYTES
        return Consumer(route, cell, numbers, arrived, deadline, piece)
    return Consumer(route, cell, numbers, arrived, deadline)


def _receive_all(
    pipe: Connection, cell: LoadCell, watch: _Watch, opened: dict[int, Consumer]
) -> Optional[ReceivingReport]:
    selector = selectors.DefaultSelector()
    selector.register(pipe, selectors.EVENT_READ)
    for number, consumer in opened.items():
        selector.register(consumer.session, selectors.EVENT_READ, number)
    slow = opened.get(0) if cell.has_slow_consumer else None
    pace, paused = _Pace(cell), False
    problems: list[str] = []
    started, began = time.monotonic(), os.times()
    worked = began
    said = -1
    next_progress = started
    while True:
        now = time.monotonic()
        if now >= next_progress:
            next_progress = now + PROGRESS_S
            count = sum(one.count for one in watch.arrivals.values())
            if count != said:
                said, worked = count, os.times()
            pipe.send((PROGRESS, count))
            for consumer in opened.values():
                with suppress(SessionLost):  # its next read reports it
                    consumer.flush()
        if paused and slow is not None and pace.allows(watch.arrivals[0].count):
            selector.register(slow.session, selectors.EVENT_READ, 0)
            paused = False
        for key, _ in selector.select(SLOW_TICK_S if paused else PROGRESS_S / 2):
            number = key.data
            if number is None:
                request, *values = pipe.recv()
                if request == GO:
                    watch.start_us = int(values[0] * 1e6)
                    started, began = time.monotonic(), os.times()
                    pace.start(started)
                elif request == EMPTY:
                    _empty(opened, problems)
                elif request == END:
                    spent_s = worked.user + worked.system - began.user - began.system
                    return _report(watch, opened, problems, started, spent_s)
                continue
            consumer = opened[number]
            if consumer is slow and not pace.allows(watch.arrivals[number].count):
                selector.unregister(consumer.session)
                paused = True
                continue
            try:
                for _ in range(pace.reads if consumer is slow else READS_PER_TURN):
                    if not consumer.receive():
                        break
            except SessionLost as loss:
                problems.append(f"consumer {number}: {loss}")
                selector.unregister(consumer.session)


class _Pace:
    """When the slow consumer may read: always, but for the middle third of the time."""

    def __init__(self, cell: LoadCell) -> None:
        self._from_s, self._until_s = cell.slow_between()
        self._started = 0.0
        self._taken: Optional[int] = None
        self.reads = 1
        """How often it may read in this turn."""

    def start(self, now: float) -> None:
        self._started = now

    def allows(self, taken: int) -> bool:
        elapsed_s = time.monotonic() - self._started
        if not self._started or not self._from_s <= elapsed_s < self._until_s:
            self.reads = READS_PER_TURN * 16  # as much as the others
            return True
        self.reads = 1
        if self._taken is None:
            self._taken = taken
        return taken - self._taken < (elapsed_s - self._from_s) * SLOW_PER_S


def _empty(opened: dict[int, Consumer], problems: list[str]) -> None:
    """Take the rest of a queue: some brokers would keep it for ever."""
    ends_at = time.monotonic() + EMPTY_S
    last = time.monotonic()
    while time.monotonic() - last < EMPTY_QUIET_S:
        if time.monotonic() > ends_at:
            problems.append(f"messages remain in the queue: it is not empty after {EMPTY_S:g} s")
            return
        arrived = False
        for consumer in opened.values():
            try:
                consumer.flush()
                arrived |= consumer.receive()
            except SessionLost:
                continue
        if arrived:
            last = time.monotonic()
        else:
            time.sleep(0.02)


def _report(
    watch: _Watch,
    opened: dict[int, Consumer],
    problems: Sequence[str],
    started: float,
    processor_s: float,
) -> ReceivingReport:
    readers = [consumer.reader for consumer in opened.values()]
    last_s = max(0.0, (watch.last_us - watch.start_us) / 1e6)
    to_broker, from_broker = (
        LagCounts(counts, longest) for counts, longest in zip(watch.parts, watch.longest_parts_us)
    )
    return ReceivingReport(
        next(iter(opened.values())).server,
        watch.arrivals,
        watch.by_bin,
        watch.lags(),
        to_broker,
        from_broker,
        last_s,
        sum(reader.bytes for reader in readers),
        watch.foreign + sum(reader.foreign for reader in readers),
        last_s or time.monotonic() - started,
        processor_s,
        problems,
    )
