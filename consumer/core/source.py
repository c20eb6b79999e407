"""Where messages come from: the seam that every kind of source implements, and its threads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from sam_pipeline.consumer.core.inbox import Inbox

CLOSE_S = 6.0
"""How long all sources together may take to close."""

logger = logging.getLogger(__name__)


class Source(Protocol):
    """One configured broker, with everything behind its URL."""

    name: str

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        """Deliver until `stop`, then execute the acks due, and close.

        It runs in a thread of its own. It handles lost connections; an exception ends the program.
        """

    def missing(self) -> Sequence[str]:
        """A line for each part that does not deliver at this moment, with the reason."""


@contextmanager
def delivering(sources: Sequence[Source], inbox: Inbox) -> Iterator[None]:
    """All sources run inside the block; at its end they execute the acks due and close.

    An exception that any thread does not catch meanwhile ends the program.
    """

    def fail(failed: threading.ExceptHookArgs) -> None:
        error = failed.exc_value or failed.exc_type()
        name = failed.thread.name if failed.thread else "a thread"
        traceback = (failed.exc_type, error, failed.exc_traceback)
        logger.critical("%s failed, which ends the program", name, exc_info=traceback)
        inbox.fail(error)

    before, threading.excepthook = threading.excepthook, fail
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
        threading.excepthook = before


def start_worker(run: Callable[[], None], name: str, inbox: Inbox) -> threading.Thread:
    """A thread whose exception ends the program: no part of it fails alone."""

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            inbox.fail(error)

    thread = threading.Thread(target=guarded, name=name, daemon=True)
    thread.start()
    return thread
