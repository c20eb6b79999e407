"""The long form of the soak: real brokers in pairs, a real database, publishers as processes.

    python -m tests.kills --minutes 60                          each pair of kinds, in turn
    python -m tests.kills --minutes 60 --brokers artemis rabbitmq
    python -m tests.kills --brokers activemq activemq --seed 7  the same faults in the same order

Exit 1 if a record was lost or stored twice, or a program failed; then its logs are kept.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path

from tests.kills.faults import Fault, chosen_faults
from tests.kills.soak import soak
from tests.services import ServiceMissing
from tests.services.brokers import BROKERS
from tests.services.postgres import PostgresServer, running_postgres
from tests.services.process import ServerDied

PARTITION_S = 300.0
PARTITION_SHARE = 0.2
"""Of a short soak; it lasts PARTITION_S in a longer one."""


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    pairs = [tuple(args.brokers)] if args.brokers else list(combinations(BROKERS, 2))
    seed = random.randrange(10**6) if args.seed is None else args.seed
    try:
        with running_postgres() as postgres:
            sound = [_run(pair, postgres, 60 * args.minutes / len(pairs), seed) for pair in pairs]
    except ServiceMissing as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0 if all(sound) else 1


def _run(names: tuple[str, ...], postgres: PostgresServer, duration_s: float, seed: int) -> bool:
    """Print inputs and figures; True if nothing was lost or stored twice, and nothing failed."""
    partition_s = min(PARTITION_S, PARTITION_SHARE * duration_s)
    print(
        f"{' and '.join(names)}, seed {seed}, {duration_s / 60:g} minutes,"
        f" of which {partition_s:.0f} s are a partition",
        flush=True,
    )
    directory = Path(tempfile.mkdtemp(prefix=f"sam-soak-{'-'.join(names)}-"))
    faults = _until(time.monotonic() + duration_s, chosen_faults(seed))
    with ExitStack() as stack:
        brokers = [stack.enter_context(BROKERS[name]()) for name in names]
        try:
            figures = soak(directory, brokers, postgres, faults, seed, partition_s)
        except (AssertionError, ServerDied) as failure:
            print(f"  FAILED, logs in {directory}: {failure}", flush=True)
            return False
    print(figures, flush=True)
    if figures.problems:
        print(f"  FAILED, logs in {directory}", flush=True)
        return False
    shutil.rmtree(directory)
    return True


def _until(ends_at: float, faults: Iterator[Fault]) -> Iterator[Fault]:
    while time.monotonic() < ends_at:
        yield next(faults)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=float, default=10, help="in total (default %(default)g)")
    parser.add_argument(
        "--brokers", nargs=2, choices=BROKERS, help="the kinds of the two brokers (default: all)"
    )
    parser.add_argument("--seed", type=int, help="the faults to repeat (default: random)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
