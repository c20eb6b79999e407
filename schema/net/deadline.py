"""How long something may still take, by the clock that never jumps."""

from __future__ import annotations

import time
from typing import NamedTuple


class Deadline(NamedTuple):
    """A moment of the monotonic clock; whoever is handed one ends before it."""

    ends_at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds)

    def remaining(self) -> float:
        """Seconds that are left, never below 0."""
        return max(0.0, self.ends_at - time.monotonic())

    @property
    def expired(self) -> bool:
        return self.remaining() == 0

    def share(self, parts: int) -> Deadline:
        """The end of the first of so many equal parts of what is left."""
        return Deadline.after(self.remaining() / parts)
