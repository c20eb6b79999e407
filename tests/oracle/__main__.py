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
from pathlib import Path

from sam_pipeline.spark_jobs.compute.cluster.start import Starter
from sam_pipeline.spark_jobs.config import prepare_workers
from tests.oracle.check import Checker
from tests.oracle.databases import Databases
from tests.services.postgres import fresh_database, running_postgres

BATCH = 100
"""Worlds of one report."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--worlds", type=int, default=10_000, help="how many (default %(default)d)")
    parser.add_argument("--seed", type=int, help="which worlds (default: by chance)")
    args = parser.parse_args()
    seed = random.randrange(10**6) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)
    prepare_workers()
    context = Starter().start("local[2]", {})
    started = time.monotonic()
    with running_postgres() as server, tempfile.TemporaryDirectory() as directory:
        checker = Checker(context, Databases(Path(directory), fresh_database(server)))
        for number, first in enumerate(range(0, args.worlds, BATCH)):
            checked = min(first + BATCH, args.worlds)
            try:
                checker.check(seed, number, checked - first)
            except AssertionError as difference:
                print(difference, flush=True)
                return 1
            print(f"{checked} worlds, {time.monotonic() - started:.0f} s", flush=True)
    context.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
