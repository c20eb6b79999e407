"""Processes beside the tool, so that it measures the broker and not the lock of Python.

Each serves many connections at once: those of producers, or those of consumers. It has a pipe to
the process that conducts the test, and ends by itself when that one dies.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Callable, NamedTuple, Optional

from sam_pipeline.publisher.errors import PublishError
from sam_pipeline.publisher.load_test.counting import Arrivals, Durations, Sent
from sam_pipeline.publisher.load_test.plan import (
    CONFIRM_S,
    EMPTY_S,
    LEAVE_S,
    SET_UP_S,
    SLOW_PER_S,
    LoadCell,
)
from sam_pipeline.publisher.load_test.wire import (
    PER_RECEIPT,
    Consumer,
    LoadArrival,
    LoadRoute,
    Producer,
)
from sam_pipeline.schema.net.channel import RECEIVE_BYTES
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.session import SessionLost

READY, FAILED, PROGRESS, DONE = "ready", "failed", "progress", "done"
"""The first item of an answer."""
GO, STOP, EMPTY, END = "go", "stop", "empty", "end"
"""The first item of a request."""
PROGRESS_S = 0.1
JOIN_S = 5.0
TICK_S = 0.002
"""How often a producer with a rate checks whether a message is due."""
READS_PER_TURN = 4
"""How often a connection is read before the others get their turn."""
READ_BYTES = RECEIVE_BYTES * 4
SLOW_BYTES, SLOW_TLS_BYTES = 4096, 16384
"""A slow consumer reads in small pieces; over TLS no piece of a record may remain unread."""
SLOW_TICK_S = 0.01
"""How often it checks whether it may read again."""
EMPTY_QUIET_S = 1.0
"""A queue counts as empty when nothing has arrived for this long."""


class LoadTask(NamedTuple):
    """The work of a process: its producers or consumers of a cell, by number."""

    route: LoadRoute
    cell: LoadCell
    cell_number: int
    numbers: Sequence[int]
    bin_s: float


Work = Callable[[Connection, LoadTask], None]


class Worker:
    """A process that does some work, and the pipe to it."""

    def __init__(self, work: Work, task: LoadTask, others: Sequence[Worker]) -> None:
        """`others`: started earlier; the new process must not keep their pipes open."""
        fork = multiprocessing.get_context("fork")  # in one file, no other process finds us
        self.pipe, end = fork.Pipe()
        inherited = [self.pipe, *(other.pipe for other in others)]
        self._process = fork.Process(target=_main, args=(work, task, end, inherited))
        self._process.start()
        end.close()

    def say(self, *request: object) -> None:
        """Send a request; nothing happens if the process has ended."""
        with suppress(OSError):
            self.pipe.send(request)

    def end(self) -> None:
        """Close the pipe, which ends the process, and wait for its end."""
        self.pipe.close()
        self._process.join(JOIN_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _main(work: Work, task: LoadTask, pipe: Connection, inherited: Sequence[Connection]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # the conducting process decides
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    for other in inherited:
        other.close()
    try:
        work(pipe, task)
    except Exception as error:
        is_bug = not isinstance(error, PublishError)
        text = f"a bug: {type(error).__name__}: {error}" if is_bug else str(error)
        with suppress(OSError):  # the conducting process may have died
            pipe.send((FAILED, text))


class SendingReport(NamedTuple):
    """What the producers of a process did; `sent` and `by_bin` have one entry per producer.

    `by_bin`: messages by interval of the time since the start. `last_s`: when the last receipt
    arrived. `processor_s`: time of the processor that it took.
    """

    sent: dict[int, Sent]
    by_bin: dict[int, int]
    last_s: float
    wall_s: float
    processor_s: float
    problems: Sequence[str]


def send(pipe: Connection, task: LoadTask) -> None:
    """Connect, wait for GO, send, and report."""
    deadline = Deadline.after(SET_UP_S)
    lines = [
        Producer(task.route, task.cell, (task.cell_number, number), deadline)
        for number in task.numbers
    ]
    try:
        pipe.send((READY, ""))
        request, *start = pipe.recv()
        if request == GO:
            pipe.send((DONE, _send_all(pipe, task, lines, start[0])))
            pipe.recv()
    finally:
        for line in lines:
            line.session.drop()


def _send_all(
    pipe: Connection, task: LoadTask, lines: Sequence[Producer], start: float
) -> SendingReport:
    """Send until all is sent, the time is over or a request arrives; wait for the receipts."""
    cell = task.cell
    selector = selectors.DefaultSelector()
    selector.register(pipe, selectors.EVENT_READ)
    for line in lines:
        selector.register(line.session, selectors.EVENT_READ, line)
    rate = cell.rate and cell.rate * len(lines) / cell.producers
    by_bin: dict[int, int] = {}
    problems: list[str] = []
    turns = deque(lines)
    sent = 0
    writing = set[Producer]()
    time.sleep(max(0.0, start - time.time()))
    started, began = time.monotonic(), os.times()
    last_s, next_progress = 0.0, started
    ends_at, gives_up_at = started + cell.seconds, started + cell.seconds + CONFIRM_S
    while True:
        now = time.monotonic()
        if now < ends_at:
            allowed = int(rate * (now - started)) - sent if rate else cell.messages
            for _ in range(len(turns)):
                if allowed <= 0:
                    break
                line = turns[0]
                turns.rotate(-1)
                if line.can_send():
                    with _noting_loss(line, problems):
                        due = math.ceil(allowed / len(lines)) if rate else PER_RECEIPT
                        count = line.send(min(due, PER_RECEIPT))
                        allowed -= count
                        sent += count
                        at = int((now - started) / task.bin_s)
                        by_bin[at] = by_bin.get(at, 0) + count
        for line in lines:
            if bool(line.unsent) != (line in writing) and not line.lost:
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if line.unsent else 0)
                selector.modify(line.session, events, line)
                writing ^= {line}
        everything = all(line.lost or line.next >= line.share for line in lines)
        if (everything or now >= ends_at) and all(line.is_done for line in lines):
            break
        if now >= gives_up_at:
            problems.append(f"receipts are missing {CONFIRM_S:g} s after the last message")
            break
        if now >= next_progress:
            pipe.send((PROGRESS, sent))
            next_progress = now + PROGRESS_S
        waits_for_rate = rate and now < ends_at and not everything
        for key, events in selector.select(TICK_S if waits_for_rate else PROGRESS_S):
            line = key.data
            if line is None:
                pipe.recv()  # STOP
                ends_at = min(ends_at, time.monotonic())
                gives_up_at = min(gives_up_at, ends_at + CONFIRM_S)
                continue
            with _noting_loss(line, problems):
                if events & selectors.EVENT_WRITE:
                    line.flush()
                if events & selectors.EVENT_READ and line.receive():
                    last_s = time.monotonic() - started
            if line.lost:
                selector.unregister(line.session)
    took = os.times()
    return SendingReport(
        {line.number: Sent(line.next, line.confirmed) for line in lines},
        by_bin,
        last_s,
        time.monotonic() - started,
        took.user + took.system - began.user - began.system,
        problems,
    )


@contextmanager
def _noting_loss(line: Producer, problems: list[str]) -> Iterator[None]:
    """Turns the end of a session into a problem, once."""
    try:
        yield
    except SessionLost as loss:
        line.lost = True
        problems.append(f"producer {line.number}: {loss}")


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


def receive(pipe: Connection, task: LoadTask) -> None:
    """Subscribe, count what arrives until END, report, and delete the subscriptions."""
    route, cell, cell_number, consumers, bin_s = task
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
    """Consume the rest of a queue, which some brokers would keep for ever."""
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
