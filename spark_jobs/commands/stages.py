"""What a long command is doing, for who watches it on a terminal."""

from __future__ import annotations

import sys
import time


class Stages:
    """Tells on a terminal what is being done, and how long each step took."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._began: float | None = None

    def __call__(self, text: str) -> None:
        self.end()
        self._began = time.monotonic()
        if self._shown:
            print(f"  {text} … ", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown and self._began is not None:
            print(f"{time.monotonic() - self._began:.1f} s", file=sys.stderr, flush=True)
        self._began = None
