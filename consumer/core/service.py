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
from sam_pipeline.consumer.core.unstored import UnstoredMessage
from sam_pipeline.consumer.errors import SinkAway


def consume(
    sources: Sequence[Source],
    inbox: Inbox,
    rule: BatchRule,
    sink: Sink,
    attempts: Attempts,
    unstored: UnstoredMessage,
    state: State,
    stop: threading.Event,
    drain: Drain | None = None,
) -> None:
    """Store messages until `stop` is set, or until the drain has stored everything.

    Raises:
        SamError: from `sink.prepare`; unless the sink was away, before any broker is read.
        SinkAway: in a drain, the sink was away for longer than its timeout.
    """
    patience = Patience(stop, growing_delays, state, drain.timeout_s if drain else math.inf)
    loop = Loop(inbox, rule, sink, patience, attempts, unstored, state)
    with suppress(SinkAway):
        loop.prepare()
        state.can_commit()  # a source that answers its senders need not refuse the first ones
    with delivering(sources, inbox), suppress(Stopped):
        # While the sink is away, sources only make subscriptions that do not exist yet.
        patience.until_done(loop.prepare)
        loop.run(stop, drain.should_continue if drain else lambda news: True)
        sink.finish()
    inbox.raise_failure()
    state.tally.damaged += inbox.damaged
    inbox.damaged = 0
    state.reconnects += inbox.reconnects
    inbox.reconnects.clear()
