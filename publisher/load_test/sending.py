"""The process of some producers: sends on all their connections at once.

A producer has a limited number of messages without a receipt, as a careful client has. So it goes
as fast as the broker confirms, and stops when the broker does: that is flow control.
"""

from __future__ import annotations

import math
import os
import selectors
import time
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import NamedTuple

from sam_pipeline.publisher.load_test.counting import Sent
from sam_pipeline.publisher.load_test.plan import CONFIRM_S, SET_UP_S, LoadCell
from sam_pipeline.publisher.load_test.wire import LoadRoute, Producer
from sam_pipeline.publisher.load_test.workers import DONE, GO, PROGRESS, PROGRESS_S, READY
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.session import SessionLost

PER_RECEIPT = 50
"""Messages that one receipt confirms at most; with a rate, only those that are due."""
MAX_RECEIPTS = 2
"""Receipts that a producer waits for at most before it sends more."""
TICK_S = 0.002
"""How often a producer with a rate looks whether a message is due."""


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


class _Line:
    """A producer with what it has under way."""

    def __init__(self, producer: Producer, share: int) -> None:
        self.producer, self.share = producer, share
        self.number = producer.number
        self.next = 0
        self.confirmed = 0
        self.waiting: deque[int] = deque()
        """The receipts it waits for: each is the number of messages that are confirmed then."""
        self.unsent = b""
        self.lost = False

    @property
    def is_done(self) -> bool:
        return self.lost or not (self.waiting or self.unsent)

    def can_send(self) -> bool:
        if self.lost or self.unsent or self.next >= self.share:
            return False
        return len(self.waiting) < MAX_RECEIPTS

    def send(self, count: int) -> int:
        """Send up to `count` messages, and return how many it sent."""
        count = min(count, self.share - self.next)
        self.unsent = self.producer.frames(self.next, count)
        self.next += count
        self.waiting.append(self.next)
        self.flush()
        return count

    def flush(self) -> None:
        if self.unsent:
            self.unsent = self.unsent[self.producer.session.send_now(self.unsent) :]

    def receive(self) -> bool:
        """Read receipts; return whether one arrived."""
        self.producer.session.receive_now()
        receipts = self.producer.session.receipts_now()
        for receipt in receipts:
            self.confirmed = max(self.confirmed, int(receipt))
            while self.waiting and self.waiting[0] <= self.confirmed:
                self.waiting.popleft()
        return bool(receipts)


def send(
    pipe: Connection,
    route: LoadRoute,
    cell: LoadCell,
    cell_number: int,
    producers: Sequence[int],
    bin_s: float,
) -> None:
    """Connect, wait for GO, send, and report."""
    deadline = Deadline.after(SET_UP_S)
    lines = [
        _Line(Producer(route, cell, (cell_number, number), deadline), cell.share(number))
        for number in producers
    ]
    try:
        pipe.send((READY, ""))
        request, *start = pipe.recv()
        if request == GO:
            pipe.send((DONE, _send_all(pipe, cell, lines, start[0], bin_s)))
            pipe.recv()
    except EOFError:
        pass
    finally:
        for line in lines:
            line.producer.session.drop()


def _send_all(
    pipe: Connection, cell: LoadCell, lines: Sequence[_Line], start: float, bin_s: float
) -> SendingReport:
    """Send until all is sent, the time is over or a request arrives; wait for the receipts."""
    selector = selectors.DefaultSelector()
    selector.register(pipe, selectors.EVENT_READ)
    for line in lines:
        selector.register(line.producer.session, selectors.EVENT_READ, line)
    rate = cell.rate and cell.rate * len(lines) / cell.producers
    by_bin: dict[int, int] = {}
    problems: list[str] = []
    turns = deque(lines)
    sent = 0
    writing = set[_Line]()
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
                        at = int((now - started) / bin_s)
                        by_bin[at] = by_bin.get(at, 0) + count
        for line in lines:
            if bool(line.unsent) != (line in writing) and not line.lost:
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if line.unsent else 0)
                selector.modify(line.producer.session, events, line)
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
                selector.unregister(line.producer.session)
    took = os.times()
    return SendingReport(
        {line.number: Sent(line.next, line.confirmed) for line in lines},
        by_bin,
        last_s,
        time.monotonic() - started,
        took.user + took.system - began.user - began.system,
        problems,
    )


class _noting_loss:
    """Turns the end of a session into a problem, once."""

    def __init__(self, line: _Line, problems: list[str]) -> None:
        self._line, self._problems = line, problems

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        if not isinstance(error, SessionLost):
            return False
        self._line.lost = True
        self._problems.append(f"producer {self._line.number}: {error}")
        return True
