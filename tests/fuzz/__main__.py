"""The long form: a million inputs for all readers of records, frames, spools and requests.

    python -m tests.fuzz --inputs 1000000
    python -m tests.fuzz --seed 7 --target frames     the same inputs again

Exit 1 at the first input that raises an undocumented error or takes too much time or memory.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import resource
import sys
import time
from collections.abc import Sequence

from tests.fuzz.run import Defect, fuzz
from tests.fuzz.targets import TARGETS

PORTION = 10_000
HANG_S = 300.0
"""A portion that takes longer counts as hanging, and its stack is printed."""
MAX_GROWTH_MB = 100.0
"""Measured from the end of the first portion, when the caches are full."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--inputs", type=int, default=1_000_000, help="(default %(default)s)")
    parser.add_argument("--target", choices=TARGETS, help="only this target (default: all)")
    parser.add_argument("--seed", type=int, help="the inputs to generate (default: random)")
    args = parser.parse_args(argv)
    seed = random.randrange(10**6) if args.seed is None else args.seed
    names = list(TARGETS) if args.target is None else [args.target]
    try:
        for name in names:
            print(_summary(name, args.inputs // len(names), seed), flush=True)
    except Defect as defect:
        print(defect, file=sys.stderr)
        return 1
    print(f"peak RSS {_peak_mb():.0f} MB, 0 crashes, 0 hangs, seed {seed}")
    return 0


def _summary(name: str, inputs: int, seed: int) -> str:
    slowest_s, before_mb, began = 0.0, 0.0, time.monotonic()
    for done in range(0, inputs, PORTION):
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        slowest_s = max(slowest_s, fuzz(name, min(PORTION, inputs - done), seed + done))
        faulthandler.cancel_dump_traceback_later()
        before_mb = before_mb or _peak_mb()
        if _peak_mb() - before_mb > MAX_GROWTH_MB:
            raise Defect(f"{name}, seed {seed}: grew from {before_mb:.0f} to {_peak_mb():.0f} MB")
    took_s = time.monotonic() - began
    return f"{name:9} {inputs} inputs in {took_s:.0f} s, the slowest {1000 * slowest_s:.0f} ms"


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
