"""SIGTERM while a command publishes: nothing more is read, and no broker is waited for.

with Termination() as termination, Courier(config, termination=termination) as courier:
    …
"""

from __future__ import annotations

import os
import signal
from select import select
from types import FrameType
from typing import Callable

from sam_pipeline.publisher.errors import Terminated


class Termination:
    """Handles SIGTERM in the block, unless it is ignored.

    From then on `received` is true, and `descriptor` can be read, which ends a wait for input. The
    signal raises Terminated if `interrupts` is true.
    """

    def __init__(self) -> None:
        self.received = False
        self.interrupts = False
        self.descriptor, self._end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> Termination:
        self._before = signal.getsignal(signal.SIGTERM)
        if self._before == signal.SIG_DFL:
            # Written to by the signal itself: one just before a wait begins would not end it.
            signal.set_wakeup_fd(self._end, warn_on_full_buffer=False)
            signal.signal(signal.SIGTERM, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
        os.close(self.descriptor)
        os.close(self._end)

    def wait(self, seconds: float) -> None:
        """Wait, at most until the signal arrives."""
        select([self.descriptor], [], [], seconds)

    def shielded(self, work: Callable[[], bool]) -> Callable[[], bool]:
        """The work, which the signal does not interrupt: it raises Terminated afterwards."""

        def shielded() -> bool:
            interrupts, self.interrupts = self.interrupts, False
            outcome = work()
            if interrupts and self.received:
                raise Terminated
            self.interrupts = interrupts
            return outcome

        return shielded

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = True
        if self.interrupts:
            self.interrupts = False
            raise Terminated
