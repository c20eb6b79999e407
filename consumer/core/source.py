"""Where messages come from: the seam that every kind of source implements."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from sam_pipeline.consumer.core.inbox import Inbox

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
def no_thread_fails_alone(inbox: Inbox) -> Iterator[None]:
    """An exception that any thread does not catch inside the block ends the program."""

    def fail(failed: threading.ExceptHookArgs) -> None:
        error = failed.exc_value or failed.exc_type()
        name = failed.thread.name if failed.thread else "a thread"
        traceback = (failed.exc_type, error, failed.exc_traceback)
        logger.critical("%s failed, which ends the program", name, exc_info=traceback)
        inbox.fail(error)

    before = threading.excepthook
    threading.excepthook = fail
    try:
        yield
    finally:
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
