"""How long to wait before the next attempt: growing, capped, never two consumers in step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

FIRST_S = 0.5
LONGEST_S = 8.0
"""A broker that comes back is found within ten seconds."""

Delays = Callable[[], Iterator[float]]
"""Gives a fresh sequence of delays; injected, so that tests never sleep."""


def growing_delays(
    first_s: float = FIRST_S,
    longest_s: float = LONGEST_S,
    uniform: Callable[[float, float], float] = random.uniform,
) -> Iterator[float]:
    """Endless delays, each up to twice the last; half of each is chance."""
    delay_s = first_s
    while True:
        yield uniform(delay_s / 2, delay_s)
        delay_s = min(2 * delay_s, longest_s)
