"""The load test of the field on private brokers, with pages for each and pages that compare them.

    python -m tests.benchmarks.matrix [--broker NAME]... [--quick]

Runs `sam-publish load-test`: the matrix, with persistent and other messages on a topic and a queue,
and the scenarios. The results are in build/bench-matrix/NAME/PART/, and side by side in
build/bench-matrix/comparison/PART/.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.services.brokers import BROKERS

TARGET = Path(__file__).parents[2] / "build" / "bench-matrix"
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--broker", action="append", choices=BROKERS, help="default: all")
    parser.add_argument("--quick", action="store_true", help="a part of it, for a quick check")
    args = parser.parse_args(argv)
    parts = QUICK if args.quick else FULL
    names = args.broker or list(BROKERS)
    lost = [load_test(name, parts) for name in names]
    for part in parts if len(names) > 1 else ():
        runs = [str(TARGET / name / part) for name in names]
        target = TARGET / "comparison" / part
        subprocess.run([*LOAD_TEST, "--compare", *runs, "--out", str(target)], check=True)
    return 1 if any(lost) else 0


def load_test(name: str, parts: Parts) -> bool:
    """Test a private broker; return whether it lost messages."""
    codes = set()
    with BROKERS[name]() as broker:
        for part, options in parts.items():
            out = ("--out", str(TARGET / name / part))
            command = [*LOAD_TEST, "--broker", broker.url, *out, *options]
            codes.add(subprocess.run(command).returncode)
    if not codes <= {0, LOST}:
        raise SystemExit(f"{name}: sam-publish load-test exited with {codes}")
    return LOST in codes


if __name__ == "__main__":
    sys.exit(main())
