"""Compares Spark with the oracle on thousands of random worlds.

    python -m tests.oracle --worlds 10000
    python -m tests.oracle --worlds 500 --seed 7             the same worlds again

Exits 1 at the first world on which they differ, and prints it reduced to what the difference needs.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from sam_pipeline.spark_jobs.compute.cluster.start import Starter
from sam_pipeline.spark_jobs.config import prepare_workers
from sam_pipeline.spark_jobs.errors import JavaMissing
from tests.oracle.check import Checker
from tests.oracle.databases import Databases
from tests.services import ServiceMissing
from tests.services.postgres import fresh_database, running_postgres

BATCH = 100
"""Worlds of one report."""


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    seed = random.randrange(10**6) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)
    try:
        return _check(seed, args.worlds)
    except (ServiceMissing, JavaMissing) as reason:
        print(reason, file=sys.stderr)
        return 1


def _check(seed: int, worlds: int) -> int:
    prepare_workers()
    context = Starter().start("local[2]", {})
    started, checked = time.monotonic(), 0
    with running_postgres() as server, tempfile.TemporaryDirectory() as directory:
        checker = Checker(context, Databases(Path(directory), fresh_database(server)))
        for number in range(-(-worlds // BATCH)):
            size = min(BATCH, worlds - checked)
            try:
                checker.check(seed, number, size)
            except AssertionError as difference:
                print(difference, flush=True)
                return 1
            checked += size
            print(f"{checked} worlds, {time.monotonic() - started:.0f} s", flush=True)
    context.stop()
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--worlds", type=int, default=10_000, help="how many (default %(default)d)")
    parser.add_argument("--seed", type=int, help="which worlds (default: by chance)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
