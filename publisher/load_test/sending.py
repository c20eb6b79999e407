"""The process of some producers: sends on all their connections at once."""

from __future__ import annotations

import math
import os
import selectors
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import NamedTuple

from sam_pipeline.publisher.load_test.counting import Sent
from sam_pipeline.publisher.load_test.plan import CONFIRM_S, SET_UP_S, LoadCell
from sam_pipeline.publisher.load_test.wire import PER_RECEIPT, LoadRoute, Producer
from sam_pipeline.publisher.load_test.workers import DONE, GO, PROGRESS, PROGRESS_S, READY
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.session import SessionLost

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
    lines = [Producer(route, cell, (cell_number, number), deadline) for number in producers]
    try:
        pipe.send((READY, ""))
        request, *start = pipe.recv()
        if request == GO:
            pipe.send((DONE, _send_all(pipe, cell, lines, start[0], bin_s)))
            pipe.recv()
    finally:
        for line in lines:
            line.session.drop()


def _send_all(
    pipe: Connection, cell: LoadCell, lines: Sequence[Producer], start: float, bin_s: float
) -> SendingReport:
    """Send until all is sent, the time is over or a request arrives; wait for the receipts."""
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
                        at = int((now - started) / bin_s)
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
