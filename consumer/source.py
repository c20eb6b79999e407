"""Where messages come from: the seam that every kind of source implements."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from consumer.inbox import Inbox


class Source(Protocol):
    """One configured broker, with everything behind its URL."""

    name: str

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        """Deliver until told to stop, execute the acks given until then, let go.

        The body of a thread of its own. Lost connections are its own affair; an exception ends
        the program.
        """

    def missing(self) -> Sequence[str]:
        """What is not delivering at this moment, each with the reason; empty when all is well."""


def start_worker(run: Callable[[], None], name: str, inbox: Inbox) -> threading.Thread:
    """A thread whose unexpected end is the program's: never a daemon that is half dead."""

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            inbox.fail(error)

    thread = threading.Thread(target=guarded, name=name, daemon=True)
    thread.start()
    return thread
