"""SIGTERM and SIGINT: stop in order, and end in time even if the order takes too long."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOPPING = (signal.SIGTERM, signal.SIGINT)
DEADLINE_S = 9.0
POLL_S = 0.5

logger = logging.getLogger(__name__)


@contextmanager
def stopping_on_signals(
    stop: threading.Event, exit_now: Callable[[int], object] = os._exit
) -> Iterator[None]:
    """Set `stop` at a signal; when the block has not ended within the deadline, end the process.

    A thread waits for the signals: the main thread may sit in a database call that no signal
    handler interrupts. Ending it there is safe, since what is not committed was not acked.
    """
    done = threading.Event()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    thread = threading.Thread(target=_wait, args=(stop, done, exit_now), name="signals")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        while signal.sigtimedwait(STOPPING, 0):  # an impatient second one has been obeyed, too
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(stop: threading.Event, done: threading.Event, exit_now: Callable[[int], object]) -> None:
    while not done.is_set():
        received = signal.sigtimedwait(STOPPING, POLL_S)
        if received:
            logger.info("%s: stopping", signal.Signals(received.si_signo).name)
            stop.set()
            break
    if not done.is_set() and not done.wait(DEADLINE_S):
        logger.error("not ready in time: the batch in hand is left to the brokers")
        exit_now(0)
