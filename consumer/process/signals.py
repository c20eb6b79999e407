"""Signals: SIGTERM and SIGINT stop the daemon, SIGHUP restarts it with the current configuration.

After SIGTERM or SIGINT the process ends by a deadline, even if the loop has not stopped.
"""

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
    """The request of a signal: `stop` is set for the running loop, then call `restarts`."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._ends = self._reloads = False
        self._lock = threading.Lock()

    def end(self) -> None:
        """Stop for good."""
        with self._lock:
            self._ends = True
            self.stop.set()

    def reload(self) -> None:
        """Stop and start again."""
        with self._lock:
            self._reloads = True
            self.stop.set()

    @property
    def reloading(self) -> bool:
        """Whether the loop stops only to start again."""
        return self._reloads and not self._ends

    def restarts(self) -> bool:
        """Whether to start again after a stop; if so, clears `stop`."""
        with self._lock:
            again = self.reloading
            if again:
                self._reloads = False
                self.stop.clear()
            return again


@contextmanager
def handling_signals(
    request: StopRequest,
    exit_now: Callable[[int], object] = os._exit,
    before_exit: Callable[[], object] = lambda: None,
    reread: Callable[[], bool] = lambda: True,
) -> Iterator[None]:
    """Pass signals to `request`; end the process if the block does not stop by the deadline.

    Then `before_exit` and `exit_now` are called, from another thread. `reread` is called there as
    well, at a SIGHUP; it returns whether to reload.

    A thread waits for the signals, because the main thread may be in a database call that no signal
    handler interrupts. Ending it there is safe, since no uncommitted message was acked.
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
                if reread():
                    request.reload()
                continue
            logger.info("%s: stopping", name)
            request.end()
            if not done.wait(DEADLINE_S):
                logger.error("not stopped in time: the brokers redeliver the current batch")
                before_exit()
                exit_now(0)
            return

    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    thread = threading.Thread(target=wait, name="signals")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        while signal.sigtimedwait(SIGNALS, 0):  # discard further signals of an impatient user
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
