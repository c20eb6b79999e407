"""Delays between attempts: growing, capped, and random, so that consumers do not retry in step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

FIRST_S = 0.5
LONGEST_S = 8.0
"""A broker that comes back is reconnected within ten seconds."""

Delays = Callable[[], Iterator[float]]
"""Returns a new sequence of delays; injected, so that tests never sleep."""


def growing_delays(
    first_s: float = FIRST_S,
    longest_s: float = LONGEST_S,
    uniform: Callable[[float, float], float] = random.uniform,
) -> Iterator[float]:
    """An endless sequence of delays that double up to a maximum; half of each delay is random."""
    delay_s = first_s
    while True:
        yield uniform(delay_s / 2, delay_s)
        delay_s = min(2 * delay_s, longest_s)
