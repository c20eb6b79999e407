"""The load test of the field on private brokers, with pages for each and pages that compare them.

    python -m tests.benchmarks.matrix [--broker NAME]... [--quick]

Runs `sam-publish load-test`: the matrix, with persistent and other messages on a topic and a queue,
and the scenarios. The results are in build/bench-matrix/NAME/PART/, and side by side in
build/bench-matrix/comparison/PART/.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.benchmarks.common import ROOT, arguments
from tests.services.brokers import BROKERS

TARGET = ROOT / "build" / "bench-matrix"
LOAD_TEST = (str(Path(sys.executable).with_name("sam-publish")), "load-test")
LOST = 65

Parts = Mapping[str, Sequence[str]]
"""The options of each part."""
SCENARIOS = ("--scenario=collector", "--scenario=fan-out", "--scenario=flow-control")
FULL: Parts = {
    "matrix": ("--topic", "--queue", "--persistent", "--no-persistent"),
    "scenarios": SCENARIOS,
}
QUICK: Parts = {
    "matrix": (
        *("--producers=1,5,40", "--consumers=1,3,10", "--sizes=0,100,1k,10k"),
        *("--messages=1000", "--seconds=2"),
    ),
    "scenarios": (*SCENARIOS, "--seconds=9"),
}


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(__doc__, argv, brokers=BROKERS, switches=["quick"])
    parts = QUICK if args.quick else FULL
    codes = set()
    for name in args.broker:
        with BROKERS[name]() as broker:
            for part, options in parts.items():
                out = ("--out", str(TARGET / name / part))
                command = [*LOAD_TEST, "--broker", broker.url, *out, *options]
                codes.add(subprocess.run(command).returncode)
    if not codes <= {0, LOST}:
        raise SystemExit(f"sam-publish load-test exited with {codes}")
    for part in parts if len(args.broker) > 1 else ():
        runs = [str(TARGET / name / part) for name in args.broker]
        target = str(TARGET / "comparison" / part)
        subprocess.run([*LOAD_TEST, "--compare", *runs, "--out", target], check=True)
    return 1 if LOST in codes else 0


if __name__ == "__main__":
    sys.exit(main())
