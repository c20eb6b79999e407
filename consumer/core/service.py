"""`sam-consume run`: starts the sources, stores what they deliver, stops in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from sam_pipeline.consumer.core.attempts import Attempts
from sam_pipeline.consumer.core.backoff import growing_delays
from sam_pipeline.consumer.core.drain import Drain
from sam_pipeline.consumer.core.inbox import BatchRule, Inbox
from sam_pipeline.consumer.core.loop import AWAY, Loop, Patience, Stopped
from sam_pipeline.consumer.core.sink import Sink
from sam_pipeline.consumer.core.source import Source, no_thread_fails_alone, start_worker
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.core.tally import Tally

CLOSE_S = 6.0
"""What all sources together may take to say goodbye."""


def consume(
    sink: Sink,
    sources: Sequence[Source],
    inbox: Inbox,
    attempts: Attempts,
    rule: BatchRule,
    stop: threading.Event,
    drain: Drain | None = None,
    state: State | None = None,
) -> Tally:
    """Store until told to stop, or until `drain` says that all is stored.

    Raises:
        SchemaMismatch: before anything is taken from a broker, where the database can be asked.
        DatabaseAway, SpoolError: in a drain, for longer than its timeout.
    """
    with suppress(*AWAY):
        sink.prepare()
    state = state or State()
    patience = Patience(stop, growing_delays, drain.timeout_s if drain else None, state=state)
    loop = Loop(inbox, sink.load, patience, attempts, rule, stop, sink.upkeep, state)
    with no_thread_fails_alone(inbox), delivering(sources, inbox), suppress(Stopped):
        # Subscribed first: while the database is away the brokers keep what comes.
        patience.until_done(sink.prepare)
        loop.run(drain.goes_on if drain else lambda news: True)
        sink.finish()
    inbox.raise_failure()
    state.tally.damaged += inbox.take_damaged()
    return state.tally


@contextmanager
def delivering(
    sources: Sequence[Source], inbox: Inbox, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """All sources run inside the block; at its end they execute the acks due and let go."""
    closing = threading.Event()
    threads = [
        start_worker(partial(source.run, inbox, closing), source.name, inbox) for source in sources
    ]
    try:
        yield
    finally:
        closing.set()
        deadline = clock() + CLOSE_S
        for thread in threads:
            thread.join(max(deadline - clock(), 0))
