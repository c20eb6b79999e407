"""SIGTERM and SIGINT: stop in order, and end in time even if the order takes too long. SIGHUP: stop
in order, and begin anew with what the configuration says now."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOPPING = (signal.SIGTERM, signal.SIGINT)
HEEDED = (*STOPPING, signal.SIGHUP)
DEADLINE_S = 9.0
POLL_S = 0.5

logger = logging.getLogger(__name__)


class Wishes:
    """What signals asked for. `stop` is set for whoever runs; then `begins_anew` tells why."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._ends = False
        self._reloads = False
        self._lock = threading.Lock()

    def end(self) -> None:
        with self._lock:
            self._ends = True
            self.stop.set()

    def reload(self) -> None:
        with self._lock:
            self._reloads = True
            self.stop.set()

    @property
    def only_reloads(self) -> bool:
        """Whether it stops to begin anew."""
        return self._reloads and not self._ends

    def begins_anew(self) -> bool:
        """Whether to run again after a stop; then `stop` is not set any more."""
        with self._lock:
            if self._ends or not self._reloads:
                return False
            self._reloads = False
            self.stop.clear()
            return True


@contextmanager
def heeding_signals(wishes: Wishes, exit_now: Callable[[int], object] = os._exit) -> Iterator[None]:
    """Tell `wishes` of signals; when the block has not ended in time after one that says stop, end
    the process.

    A thread waits for the signals: the main thread may sit in a database call that no signal
    handler interrupts. Ending it there is safe, since what is not committed was not acked.
    """
    done = threading.Event()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HEEDED)
    thread = threading.Thread(target=_wait, args=(wishes, done, exit_now), name="signals")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        while signal.sigtimedwait(HEEDED, 0):  # an impatient second one has been obeyed, too
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(wishes: Wishes, done: threading.Event, exit_now: Callable[[int], object]) -> None:
    while not done.is_set():
        received = signal.sigtimedwait(HEEDED, POLL_S)
        # Interrupted by SIGSTOP and SIGCONT near its end, the wait gives what no signal filled in.
        if received is None or received.si_signo not in HEEDED:
            continue
        name = signal.Signals(received.si_signo).name
        if received.si_signo == signal.SIGHUP:
            logger.info("%s: reading the configuration again", name)
            wishes.reload()
            continue
        logger.info("%s: stopping", name)
        wishes.end()
        break
    if not done.is_set() and not done.wait(DEADLINE_S):
        logger.error("not ready in time: the batch in hand is left to the brokers")
        exit_now(0)
