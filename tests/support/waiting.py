"""The one way in which tests wait for something that happens elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

SOON_S = 30.0
"""Far longer than anything takes, even on a busy machine."""
POLL_S = 0.02


def eventually(
    condition: Callable[[], Value], timeout_s: float = SOON_S, reason: object = ""
) -> Value:
    """The first true value of the condition.

    Raises:
        TimeoutError: it was still false after `timeout_s`; with the reason and its last value.
    """
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"still {value!r} after {timeout_s:g} s {reason}".rstrip())
        time.sleep(POLL_S)
    return value
