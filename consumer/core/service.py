"""Starts the sources, stores what they deliver, and stops in order."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from contextlib import suppress

from sam_pipeline.consumer.core.attempts import Attempts
from sam_pipeline.consumer.core.backoff import growing_delays
from sam_pipeline.consumer.core.drain import Drain
from sam_pipeline.consumer.core.inbox import BatchRule, Inbox
from sam_pipeline.consumer.core.loop import Loop, Patience, Stopped
from sam_pipeline.consumer.core.sink import Sink
from sam_pipeline.consumer.core.source import Source, delivering
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.errors import SinkAway


def consume(
    sources: Sequence[Source],
    inbox: Inbox,
    rule: BatchRule,
    sink: Sink,
    attempts: Attempts,
    state: State,
    stop: threading.Event,
    drain: Drain | None = None,
) -> None:
    """Store until `stop`, or until `drain` says that everything is stored.

    Raises:
        SamError: by `sink.prepare`, before anything is taken from a broker if the sink is there.
        SinkAway: in a drain, for longer than its timeout.
    """
    with suppress(SinkAway):
        sink.prepare()
    patience = Patience(stop, growing_delays, state, drain.timeout_s if drain else math.inf)
    loop = Loop(inbox, rule, sink, patience, attempts, state)
    with delivering(sources, inbox), suppress(Stopped):
        # Subscribed first: while the sink is away the brokers keep what arrives.
        patience.until_done(sink.prepare)
        loop.run(stop, drain.goes_on if drain else lambda news: True)
        sink.finish()
    inbox.raise_failure()
    state.tally.damaged += inbox.damaged
    inbox.damaged = 0
