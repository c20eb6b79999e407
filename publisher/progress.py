"""How far a long action is, for a person at a terminal."""

from __future__ import annotations

import sys
import time
from typing import Callable, TextIO

PATIENCE_S = 2.0
"""What is done by then needs no bar."""
REDRAW_S = 0.2
WIDTH = 24


class Progress:
    """A bar on a terminal, with percent and rate, and a line at the end; elsewhere nothing."""

    def __init__(
        self,
        what: str,
        total: int,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._total = total
        self._stream = stream or sys.stderr
        self._clock = clock
        self._started = clock()
        self._redraw_at = self._started + PATIENCE_S if self._stream.isatty() else float("inf")
        self._drawn = False
        self._done = 0

    def show(self, done: int) -> None:
        self._done = done
        now = self._clock()
        if now < self._redraw_at:
            return
        self._redraw_at = now + REDRAW_S
        self._draw("")

    def make_way(self) -> None:
        """For a line of the result on the same terminal."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def end(self) -> None:
        if self._drawn:
            self._draw("\n")

    def _draw(self, end: str) -> None:
        done = self._done
        share = min(1.0, done / self._total) if self._total else 1.0
        bar = ("#" * int(share * WIDTH)).ljust(WIDTH, ".")
        rate = done / max(self._clock() - self._started, 1e-6)
        words = f"{self._what} [{bar}] {share:4.0%}  {done} of {self._total}, {rate:.0f}/s"
        self._stream.write(f"\r{words}\x1b[K{end}")
        self._stream.flush()
        self._drawn = True
