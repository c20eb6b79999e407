"""The process of some consumers: reads all their connections at once, and counts."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Optional

from sam_pipeline.publisher.load_test.counting import Arrivals, Durations
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
from sam_pipeline.schema.net.channel import RECEIVE_BYTES
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.session import SessionLost

READS_PER_TURN = 4
"""How often a connection is read before the others get their turn."""
READ_BYTES = RECEIVE_BYTES * 4
SLOW_BYTES, SLOW_TLS_BYTES = 4096, 16384
"""A slow consumer reads in small pieces; over TLS no piece of a record may remain unread."""
SLOW_TICK_S = 0.01
"""How often it looks whether it may read again."""
EMPTY_QUIET_S = 1.0
"""A queue counts as empty when nothing has arrived for this long."""


@dataclass
class ReceivingReport:
    """What the consumers of a process received; `arrivals` and `by_bin` are by consumer.

    `lags` has the time from sending to arrival, by interval of the time since the start.
    `to_broker` and `from_broker` are its parts, if the broker states a time.
    """

    arrivals: dict[int, Arrivals]
    by_bin: dict[int, dict[int, int]]
    lags: dict[int, Durations] = field(default_factory=dict)
    to_broker: Durations = field(default_factory=Durations)
    from_broker: Durations = field(default_factory=Durations)
    server: str = ""
    last_s: float = 0.0
    bytes: int = 0
    foreign: int = 0
    wall_s: float = 0.0
    processor_s: float = 0.0
    problems: list[str] = field(default_factory=list)


class _Watch:
    """Counts the arrivals of all consumers of this process."""

    def __init__(self, report: ReceivingReport, cell_number: int, bin_s: float) -> None:
        self.start_us = 0
        self._report = report
        self._cell_number = cell_number
        self._bin_us = int(bin_s * 1e6)

    def note(self, consumer: int, arrival: LoadArrival) -> None:
        report = self._report
        cell, producer, number, sent_us, broker_us, arrived_us = arrival
        try:
            if cell != self._cell_number:
                raise IndexError
            report.arrivals[consumer].add(producer, number)
        except IndexError:
            report.foreign += 1
            return
        report.last_s = max(0.0, (arrived_us - self.start_us) / 1e6)
        at = max(0, arrived_us - self.start_us) // self._bin_us
        by_bin = report.by_bin[consumer]
        by_bin[at] = by_bin.get(at, 0) + 1
        if at not in report.lags:
            report.lags[at] = Durations()
        report.lags[at].add(max(0, arrived_us - sent_us))
        if broker_us:
            # The broker's time has no fractions of a ms, so ours must not have them either.
            report.to_broker.add(max(0, broker_us - sent_us // 1000 * 1000))
            report.from_broker.add(max(0, arrived_us - broker_us))


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
    shares = [cell.share(number) for number in range(cell.producers)]
    arrivals = {number: Arrivals(shares) for number in consumers}
    report = ReceivingReport(arrivals, by_bin={number: {} for number in consumers})
    watch = _Watch(report, cell_number, bin_s)
    opened: dict[int, Consumer] = {}
    slow_bytes = SLOW_TLS_BYTES if route.target.broker.tls else SLOW_BYTES
    try:
        for number in consumers:
            is_slow = cell.has_slow_consumer and number == 0
            opened[number] = Consumer(
                route,
                cell,
                (cell_number, number),
                partial(watch.note, number),
                deadline,
                slow_bytes if is_slow else READ_BYTES,
            )
        report.server = opened[consumers[0]].server
        pipe.send((READY, ""))
        _receive_all(pipe, cell, watch, report, opened)
    finally:
        ends = Deadline.after(LEAVE_S)
        report.problems += filter(None, [consumer.leave(ends) for consumer in opened.values()])
    pipe.send((DONE, report))


def _receive_all(
    pipe: Connection,
    cell: LoadCell,
    watch: _Watch,
    report: ReceivingReport,
    opened: dict[int, Consumer],
) -> None:
    """Count what arrives until END."""
    selector = selectors.DefaultSelector()
    selector.register(pipe, selectors.EVENT_READ)
    for number, consumer in opened.items():
        selector.register(consumer.session, selectors.EVENT_READ, number)
    slow = opened.get(0) if cell.has_slow_consumer else None
    pace, paused = _Pace(cell), False
    started, began = time.monotonic(), os.times()
    worked = began
    said = -1
    next_progress = started
    while True:
        now = time.monotonic()
        if now >= next_progress:
            next_progress = now + PROGRESS_S
            count = sum(one.count for one in report.arrivals.values())
            if count != said:
                said, worked = count, os.times()
            pipe.send((PROGRESS, count))
            for consumer in opened.values():
                with suppress(SessionLost):  # its next read reports it
                    consumer.flush()
        if paused and slow is not None and pace.allows(report.arrivals[0].count):
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
                    _empty(opened, report.problems)
                elif request == END:
                    report.processor_s = worked.user + worked.system - began.user - began.system
                    report.wall_s = report.last_s or time.monotonic() - started
                    for consumer in opened.values():
                        report.bytes += consumer.reader.bytes
                        report.foreign += consumer.reader.foreign
                    return
                continue
            consumer = opened[number]
            if consumer is slow and not pace.allows(report.arrivals[0].count):
                selector.unregister(consumer.session)
                paused = True
                continue
            try:
                for _ in range(pace.reads if consumer is slow else READS_PER_TURN):
                    if not consumer.receive():
                        break
            except SessionLost as loss:
                report.problems.append(f"consumer {number}: {loss}")
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
