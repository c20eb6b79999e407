"""The interface of sources, the threads in which they run, and the delays between attempts."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from sam_pipeline.consumer.core.inbox import Inbox

CLOSE_S = 6.0
FIRST_S = 0.5
LONGEST_S = 8.0
"""A broker that comes back is reconnected within ten seconds."""

Delays = Callable[[], Iterator[float]]
"""Returns a new sequence of delays; injected, so that tests never sleep."""

logger = logging.getLogger(__name__)


class Source(Protocol):
    """One configured broker, with all addresses behind its URL."""

    name: str

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        """Deliver until `stop` is set, then send the acks due and close.

        It runs in its own thread and reconnects by itself; an exception ends the program.
        """

    def missing(self) -> Sequence[str]:
        """The addresses that do not deliver at the moment, each with the reason."""


@contextmanager
def delivering(sources: Sequence[Source], inbox: Inbox) -> Iterator[None]:
    """Run all sources inside the block; at its end they send the acks due and close.

    An uncaught exception in any thread ends the program.
    """

    def fail(failed: threading.ExceptHookArgs) -> None:
        error = failed.exc_value or failed.exc_type()
        name = failed.thread.name if failed.thread else "a thread"
        traceback = (failed.exc_type, error, failed.exc_traceback)
        logger.critical("%s failed; the program ends", name, exc_info=traceback)
        inbox.fail(error)

    previous_hook, threading.excepthook = threading.excepthook, fail
    closing = threading.Event()
    threads = [
        start_worker(partial(source.run, inbox, closing), source.name, inbox) for source in sources
    ]
    try:
        yield
    finally:
        closing.set()
        deadline = time.monotonic() + CLOSE_S
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))
        threading.excepthook = previous_hook


def start_worker(run: Callable[[], None], name: str, inbox: Inbox) -> threading.Thread:
    """Start a thread whose exception ends the program, so that no part of it fails unnoticed."""

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            inbox.fail(error)

    thread = threading.Thread(target=guarded, name=name, daemon=True)
    thread.start()
    return thread


def growing_delays(
    first_s: float = FIRST_S,
    longest_s: float = LONGEST_S,
    uniform: Callable[[float, float], float] = random.uniform,
) -> Iterator[float]:
    """An endless sequence of delays that double up to a maximum; half of each delay is random."""
    delay_s = first_s
    while True:
        yield uniform(delay_s / 2, delay_s)
        delay_s = min(2 * delay_s, longest_s)
