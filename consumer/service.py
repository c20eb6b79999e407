"""`sam-consume run`: starts the sources, loads what they deliver, stops in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial

from sqlalchemy import Engine

from consumer.backoff import growing_delays
from consumer.drain import Drain
from consumer.inbox import Inbox
from consumer.loop import BatchRule, Load, Loop, Patience, Stopped
from consumer.open_letters import OpenLetters
from consumer.source import Source, no_thread_fails_alone, start_worker
from consumer.state import State
from consumer.tally import Tally
from consumer.upkeep import Upkeep
from schema.message import Message
from sql.catalogue import Catalogue
from sql.dead_letter import count_open
from sql.errors import DatabaseAway, SqlError
from sql.load import Loaded, load
from sql.news import fold, fold_all
from sql.version import require_current

CLOSE_S = 6.0
"""What all sources together may take to say goodbye."""


def consume(
    engine: Engine,
    sources: Sequence[Source],
    inbox: Inbox,
    rule: BatchRule,
    stop: threading.Event,
    drain: Drain | None = None,
    state: State | None = None,
) -> Tally:
    """Load until told to stop, or until `drain` says that all is loaded.

    Raises:
        SchemaMismatch: before anything is taken from a broker, where the database can be asked.
        DatabaseAway: in a drain, for longer than its timeout.
    """
    with suppress(DatabaseAway):
        require_current(engine)
    state = state or State()
    patience = Patience(stop, growing_delays, drain.timeout_s if drain else None, state=state)
    letters = OpenLetters(partial(count_open, engine), state)
    upkeep = Upkeep(partial(fold, engine), also=letters)
    loop = Loop(inbox, loader(engine), patience, rule, stop, upkeep, state)
    with no_thread_fails_alone(inbox), delivering(sources, inbox), suppress(Stopped):
        # Subscribed first: while the database is away the brokers keep what comes.
        patience.until_done(lambda: require_current(engine))
        loop.run(drain.goes_on if drain else lambda news: True)
        with suppress(SqlError):
            fold_all(engine)
    inbox.raise_failure()
    state.tally.damaged = inbox.damaged
    return state.tally


def loader(engine: Engine) -> Load:
    """Loads messages in one transaction; gives what became of them."""
    catalogue = Catalogue(engine)

    def load_now(messages: Sequence[Message]) -> Loaded:
        return load(engine, catalogue, messages, datetime.now(UTC))

    return load_now


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
