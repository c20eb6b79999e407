"""SIGTERM and SIGINT: stop in order, or after a deadline at once. SIGHUP: stop in order, and start
again with the configuration as it is now."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
DEADLINE_S = 9.0
POLL_S = 0.5

logger = logging.getLogger(__name__)


class StopRequest:
    """What signals asked for. `stop` is set for the running loop; then `restarts` says why."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._ends = self._reloads = False
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
    def reloading(self) -> bool:
        """Whether it stops to start again."""
        return self._reloads and not self._ends

    def restarts(self) -> bool:
        """Whether to run again after a stop; if so, `stop` is cleared."""
        with self._lock:
            again = self.reloading
            if again:
                self._reloads = False
                self.stop.clear()
            return again


@contextmanager
def handling_signals(
    request: StopRequest, exit_now: Callable[[int], object] = os._exit
) -> Iterator[None]:
    """Pass signals to `request`; if the block does not end in time after one that says stop, end
    the process.

    A thread waits for the signals: the main thread may be in a database call that no signal
    handler interrupts. Ending it there is safe, since nothing uncommitted was acked.
    """
    done = threading.Event()

    def wait() -> None:
        while not done.is_set():
            received = signal.sigtimedwait(SIGNALS, POLL_S)
            # Interrupted by SIGSTOP and SIGCONT near its end, it may return an unset number.
            if received is None or received.si_signo not in SIGNALS:
                continue
            name = signal.Signals(received.si_signo).name
            if received.si_signo == signal.SIGHUP:
                logger.info("%s: reading the configuration again", name)
                request.reload()
                continue
            logger.info("%s: stopping", name)
            request.end()
            if not done.wait(DEADLINE_S):
                logger.error("not ready in time: the present batch is left to the brokers")
                exit_now(0)
            return

    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    thread = threading.Thread(target=wait, name="signals")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        while signal.sigtimedwait(SIGNALS, 0):  # an impatient second one was obeyed, too
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
