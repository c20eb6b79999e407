"""Measures one cell: connects all clients, starts them together, and waits for all messages."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from types import FrameType
from typing import Any, NamedTuple, Optional, Union

from sam_pipeline.publisher.errors import LoadTestFailed
from sam_pipeline.publisher.load_test.plan import (
    CONFIRM_S,
    DRAIN_S,
    EMPTY_S,
    LEAVE_S,
    QUEUE,
    SET_UP_S,
    LoadCell,
)
from sam_pipeline.publisher.load_test.wire import LoadRoute
from sam_pipeline.publisher.load_test.workers import (
    DONE,
    EMPTY,
    END,
    FAILED,
    GO,
    PROGRESS,
    PROGRESS_S,
    READY,
    STOP,
    LoadTask,
    ReceivingReport,
    SendingReport,
    Work,
    Worker,
    receive,
    send,
)


class StopSignal:
    """Handles both signals in the block; `received` is the first one.

    From then on `descriptor` can be read, which ends a wait. A second signal interrupts at once.
    """

    def __init__(self) -> None:
        self.received: Optional[signal.Signals] = None
        self.descriptor, self._end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> StopSignal:
        numbers = (signal.SIGINT, signal.SIGTERM)
        self._before: list[tuple[signal.Signals, Any]] = [
            (number, signal.signal(number, self._receive)) for number in numbers
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)
        os.close(self.descriptor)
        os.close(self._end)

    def _receive(self, number: int, frame: Optional[FrameType]) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
        os.write(self._end, b"!")


COMPLETE, QUIET, LIMIT, INTERRUPTED = "complete", "quiet", "limit", "interrupted"
"""Why a cell ended: everything arrived; arrivals stopped; time limit; signal."""

QUIET_S = 5.0
"""When nothing has arrived for this long, the rest counts as missing."""
SETTLE_S = 0.2
"""How long to wait for duplicates when everything has arrived."""
INTERRUPTED_S = 2.0
"""How long after a signal messages may still arrive."""
START_S = 0.05
MARGIN_S = 10.0
"""Added to the limits of the processes before the test gives up on them."""


class CellRun(NamedTuple):
    """A cell with the reports of its processes.

    `busy`: the share of the time that the processors of this machine worked, from 0 to 1.
    """

    cell: LoadCell
    number: int
    started_at: float
    bin_s: float
    sending: Sequence[SendingReport]
    receiving: Sequence[ReceivingReport]
    ended_by: str
    busy: float

    @property
    def reports(self) -> Sequence[Union[SendingReport, ReceivingReport]]:
        return [*self.sending, *self.receiving]


def run_cell(
    route: LoadRoute, cell: LoadCell, number: int, processes: int, stop: StopSignal
) -> CellRun:
    """Measure a cell.

    Args:
        processes: how many send, and how many receive, at most.

    Raises:
        LoadTestFailed: a connection could not be opened, or a process failed.
    """
    bin_s = max(0.1, round(cell.seconds / 30, 1))
    workers: list[Worker] = []

    def start(work: Work, count: int) -> list[Worker]:
        first = len(workers)
        for process in range(min(count, processes)):
            task = LoadTask(route, cell, number, range(process, count, processes), bin_s)
            workers.append(Worker(work, task, workers))
        for worker in workers[first:]:
            _answer(worker, READY, SET_UP_S + MARGIN_S)
        return workers[first:]

    try:
        receivers = start(receive, cell.consumers)
        senders = start(send, cell.producers)
        measuring = _Measuring(cell, senders, receivers, stop)
        started_at = time.time() + START_S
        for worker in workers:
            worker.say(GO, started_at)
        ended_by = measuring.run()
        if cell.kind == QUEUE and ended_by != COMPLETE:
            for receiver in receivers:
                receiver.say(EMPTY)
        for receiver in receivers:
            receiver.say(END)
        received = [_answer(one, DONE, EMPTY_S + LEAVE_S + MARGIN_S) for one in receivers]
    finally:
        for worker in workers:
            worker.end()
    sent = list(measuring.reports.values())
    busy = measuring.busy()
    return CellRun(cell, number, started_at, bin_s, sent, received, ended_by, busy)


class _Measuring:
    """Waits for the processes between the start and the last message."""

    def __init__(
        self,
        cell: LoadCell,
        senders: Sequence[Worker],
        receivers: Sequence[Worker],
        stop: StopSignal,
    ) -> None:
        self._cell, self._stop = cell, stop
        self._senders = {worker.pipe: worker for worker in senders}
        self._receivers = {worker.pipe: worker for worker in receivers}
        self._counts = dict.fromkeys(self._receivers, 0)
        self.reports: dict[Any, SendingReport] = {}
        self._busy_before = self._busy_last = processor_times()

    def run(self) -> str:
        """Return why it ended."""
        changed = time.monotonic()
        until = changed + self._cell.seconds + CONFIRM_S + MARGIN_S
        drains = stopping = False
        while True:
            ready = wait([*self._senders, *self._receivers, self._stop.descriptor], PROGRESS_S)
            now = time.monotonic()
            if self._stop.received and not stopping:
                stopping = True
                until = min(until, now + CONFIRM_S + MARGIN_S)
                for sender in self._senders.values():
                    sender.say(STOP)
            if self._read(ready):
                changed = now
                self._busy_last = processor_times()
            if len(self.reports) < len(self._senders):
                if now > until:
                    raise LoadTestFailed("the producers did not end in time")
                if stopping:
                    time.sleep(PROGRESS_S)  # the signal stays readable
                continue
            if not drains:
                drains, until = True, now + (INTERRUPTED_S if stopping else DRAIN_S)
                changed = now
            sent = (one.total for report in self.reports.values() for one in report.sent.values())
            if sum(self._counts.values()) >= sum(sent) * self._cell.copies:
                if now - changed >= SETTLE_S:
                    return INTERRUPTED if stopping else COMPLETE
            elif now > until:
                return INTERRUPTED if stopping else LIMIT
            elif now - changed > QUIET_S:
                return QUIET
            if stopping:
                time.sleep(PROGRESS_S / 2)
                until = min(until, now + INTERRUPTED_S)

    def busy(self) -> float:
        work, total = (last - first for first, last in zip(self._busy_before, self._busy_last))
        return work / total if total else 0.0

    def _read(self, ready: Iterable[Any]) -> bool:
        """Read the answers of the processes; return whether more messages have arrived."""
        before = sum(self._counts.values())
        for pipe in ready:
            if pipe == self._stop.descriptor:
                continue
            try:
                answer, value = pipe.recv()
            except EOFError:
                raise LoadTestFailed("a process of the load test has died") from None
            if answer == FAILED:
                raise LoadTestFailed(value)
            if answer == DONE:
                self.reports[pipe] = value
            elif answer == PROGRESS and pipe in self._counts:
                self._counts[pipe] = value
        return sum(self._counts.values()) != before


def _answer(worker: Worker, expected: str, timeout_s: float) -> Any:
    """The value of an answer; others before it are skipped. Raises LoadTestFailed."""
    ends_at = time.monotonic() + timeout_s
    with suppress(EOFError):
        while worker.pipe.poll(max(0.0, ends_at - time.monotonic())):
            answer, value = worker.pipe.recv()
            if answer == FAILED:
                raise LoadTestFailed(value)
            if answer == expected:
                return value
        raise LoadTestFailed(f"a process of the load test was not {expected} in {timeout_s:g} s")
    raise LoadTestFailed("a process of the load test has died")


def processor_times() -> tuple[float, float]:
    """The time that all processors of this machine worked, and passed, since its start."""
    with open("/proc/stat") as file:
        user, nice, system, idle, waiting, *others = map(int, file.readline().split()[1:9])
    work = user + nice + system + sum(others)
    return work, work + idle + waiting
