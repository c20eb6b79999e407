"""Many inputs for one target, each timed."""

from __future__ import annotations

import random
import time

from tests.fuzz.targets import TARGETS

SLOWEST_S = 1.0
"""The CPU time allowed for one input of at most some ten thousand bytes."""


class Defect(Exception):
    """An input caused an undocumented error or took too long; the message says how to repeat it."""


def fuzz(name: str, inputs: int, seed: int) -> float:
    """Feed this many inputs to the named target, the same for a seed; the CPU time of the slowest.

    Raises:
        Defect: an input caused an undocumented error or took too long.
    """
    slowest_s = 0.0
    for number in range(inputs):
        began = time.process_time()
        try:
            TARGETS[name].run(random.Random(f"{seed}/{number}"))
        except Exception as error:
            raise Defect(f"{name}, input {number} of seed {seed}: {error!r}") from error
        slowest_s = max(slowest_s, time.process_time() - began)
        if slowest_s > SLOWEST_S:
            raise Defect(f"{name}, input {number} of seed {seed}: {slowest_s:.1f} s")
    return slowest_s
