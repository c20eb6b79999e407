"""How far a long action is, for a person at a terminal; elsewhere nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

REDRAW_S = 0.5


class Progress:
    """One line that is drawn over and over, and gone at the end."""

    def __init__(
        self,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        things: str = "records",
    ) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._things = things
        self._started = clock()
        self._redraw_at = self._started + REDRAW_S if self._stream.isatty() else float("inf")
        self._drawn = False

    @property
    def seconds(self) -> float:
        return self._clock() - self._started

    def show(self, name: str, share: float | None, done: int, fresh: int) -> None:
        """So many things were `done` altogether, `fresh` of them since the beginning."""
        now = self._clock()
        if now < self._redraw_at:
            return
        self._redraw_at = now + REDRAW_S
        percent = "" if share is None else f" {min(share, 1):4.0%}"
        rate = fresh / max(self.seconds, 1e-6)
        words = f"{name}{percent}  {grouped(done)} {self._things}, {grouped(int(rate))} a second"
        self._stream.write(f"\r{words}\x1b[K")
        self._stream.flush()
        self._drawn = True

    def end(self) -> None:
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn = False


def grouped(number: int) -> str:
    """`1 234 567`."""
    return f"{number:,}".replace(",", " ")
