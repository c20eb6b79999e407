"""The progress of a long command, shown only on a terminal."""

from __future__ import annotations

import sys
import time
from typing import Callable, Optional

from sam_pipeline.schema.program.wording import grouped, printable

PATIENCE_S = 2.0
"""No bar is shown before this time (s)."""
REDRAW_S = 0.2
WIDTH = 24

Stage = Callable[[str], None]
"""Called with the name of each stage of a command as it begins: `Progress.stage`."""


class Progress:
    """One line that is redrawn in place (`show`, `draw`), or a line per stage (`stage`)."""

    def __init__(
        self,
        name: str = "",
        total: Optional[int] = None,
        unit: str = "messages",
    ) -> None:
        self.name = name
        self._total = total
        self._unit = unit
        self._is_terminal = sys.stderr.isatty()
        self._started = time.monotonic()
        self._redraw_at = self._started + PATIENCE_S if self._is_terminal else float("inf")
        self._drawn = False
        self._stage_name = ""
        self._stage_began: Optional[float] = None

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def show(self, done: int, share: Optional[float] = None, skipped: int = 0) -> None:
        """Draw a bar with percent, count and rate.

        Args:
            done: the number of items done, including `skipped` ones.
            share: of the whole work, from 0 to 1, where no total is known.
            skipped: items that an earlier call did; they do not count for the rate.
        """
        now = time.monotonic()
        if now < self._redraw_at:
            return
        self._redraw_at = now + REDRAW_S
        rate = round((done - skipped) / max(now - self._started, 1e-6))
        count = grouped(done)
        if self._total is not None:
            count += f" of {grouped(self._total)}"
            share = done / self._total if self._total else 1.0
        bar = "" if share is None else f" {_bar(share)}"
        self.draw(f"{self.name}{bar}  {count} {self._unit}, {grouped(rate)} a second")

    def draw(self, text: str) -> None:
        if self._is_terminal:
            self._print(f"\r{printable(text)}\x1b[K")
            self._drawn = True

    def stage(self, name: str) -> None:
        """Begin a stage; the line of the previous one ends with its duration."""
        self.end()
        self._stage_began, self._stage_name = time.monotonic(), name
        self._print(self._stage_line)

    def share(self, share: float) -> None:
        """Draw a bar behind the name of the stage: `share`, from 0 to 1, is done."""
        if self._stage_began is not None:
            self.draw(f"{self._stage_line}{_bar(share)}")

    def interrupt(self) -> None:
        """End the line before another text is printed; the stage goes on in a line of its own."""
        if self._drawn or self._stage_began is not None:
            self._print("\n")
            self._drawn = True

    def end(self) -> None:
        """Erase the bar before a result is printed, or end the line of the last stage."""
        if self._stage_began is not None:
            line = f"\r{self._stage_line}" if self._drawn else ""
            end_of_line = "\x1b[K\n" if self._drawn else "\n"
            self._print(f"{line}{time.monotonic() - self._stage_began:.1f} s{end_of_line}")
        elif self._drawn:
            self.draw("")
        self._drawn, self._stage_began = False, None

    @property
    def _stage_line(self) -> str:
        return f"  {printable(self._stage_name)} … "

    def _print(self, text: str) -> None:
        if self._is_terminal:
            print(text, end="", file=sys.stderr, flush=True)


def _bar(share: float) -> str:
    share = min(share, 1.0)
    return f"[{'#' * int(share * WIDTH):.<{WIDTH}}] {share:4.0%}"
