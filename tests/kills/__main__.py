"""The long form of the kill loop: real brokers, a real database, about 200 messages a second.

    python -m tests.kills --minutes 10                      all three brokers, one after the other
    python -m tests.kills --minutes 60 --broker artemis
    python -m tests.kills --seed 7                          the same kills in the same order again

Exit 1 if a message was lost or duplicated; the logs of the consumer are kept in that case.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.kills.loop import Kill, chosen_kills, kill_again_and_again
from tests.services import ServiceMissing
from tests.services.brokers import BROKERS
from tests.services.postgres import PostgresServer, running_postgres

ALL = "all"


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    names = list(BROKERS) if args.broker == ALL else [args.broker]
    seed = random.randrange(10**6) if args.seed is None else args.seed
    try:
        with running_postgres() as postgres:
            conserved = [
                soak(name, postgres, 60 * args.minutes / len(names), seed) for name in names
            ]
    except ServiceMissing as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0 if all(conserved) else 1


def soak(name: str, postgres: PostgresServer, duration_s: float, seed: int) -> bool:
    """Print the figures; True if nothing was lost or duplicated."""
    print(f"{name}, seed {seed}, {duration_s / 60:g} minutes", flush=True)
    directory = Path(tempfile.mkdtemp(prefix=f"sam-soak-{name}-"))
    with BROKERS[name]() as broker:
        kills = _for_a_while(chosen_kills(seed), duration_s)
        try:
            print(kill_again_and_again(directory, broker, postgres, kills), flush=True)
        except AssertionError as failure:
            print(f"  FAILED, logs in {directory}: {failure}", flush=True)
            return False
    shutil.rmtree(directory)
    return True


def _for_a_while(kills: Iterator[Kill], duration_s: float) -> Iterator[Kill]:
    ends_at = time.monotonic() + duration_s
    while time.monotonic() < ends_at:
        yield next(kills)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=float, default=10, help="in total (default %(default)g)")
    parser.add_argument("--broker", choices=[*BROKERS, ALL], default=ALL)
    parser.add_argument("--seed", type=int, help="the kills to repeat (default: random)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
