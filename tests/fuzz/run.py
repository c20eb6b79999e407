"""Many inputs for one target, each timed."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from tests.fuzz.targets import TARGETS

SLOWEST_S = 1.0
"""The CPU time allowed for one input of at most some ten thousand bytes."""


class Defect(Exception):
    """An input caused an undocumented error or took too long; the message says how to repeat it."""


@dataclass
class Figures:
    inputs: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    longest_bytes: int = 0


def fuzz(name: str, inputs: int, seed: int) -> Figures:
    """Feed this many inputs to the named target; the same seed gives the same inputs.

    Raises:
        Defect: an input caused an undocumented error or took too long.
    """
    target, figures = TARGETS[name], Figures()
    for number in range(inputs):
        chance = random.Random(f"{seed}/{number}")
        began = time.process_time()
        try:
            data = target.run(chance)
        except Exception as error:
            raise Defect(f"{name}, input {number} of seed {seed}: {error!r}") from error
        took_s = time.process_time() - began
        if took_s > SLOWEST_S:
            raise Defect(f"{name}, input {number} of seed {seed}: {took_s:.1f} s")
        figures.inputs += 1
        figures.seconds += took_s
        figures.slowest_s = max(figures.slowest_s, took_s)
        figures.longest_bytes = max(figures.longest_bytes, len(data))
    return figures
