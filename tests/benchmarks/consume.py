"""How quickly, how late and in how much memory `sam-consume` loads, beside others.

    python -m tests.benchmarks.consume [--part A]... [--broker NAME]... [--quick]

    A  one record a message: beside a bare client that only reads and acks, and the consumer that a
       Java engineer would write in thirty lines
    B  fifty records a message: beside the bulk door, fed from memory
    C  how long a message takes to its row, at 1 000 and at 15 messages a second
    D  memory with a backlog, while the database does not move and while it is loaded

On a private ActiveMQ, Artemis and RabbitMQ, all messages persistent, into a private PostgreSQL
whose commits are durable. What is compared takes turns, so that other load meets all; a ratio is
taken turn by turn, and the one in the middle counts. No start-up is timed: a turn begins with the
subscription (of `sam-consume`: with its first commit, whose rows do not count) and ends with the
last commit.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tests.benchmarks.consume_drain import fifty_records_a_message, one_record_a_message
from tests.benchmarks.consume_lag import lag
from tests.benchmarks.consume_memory import memory
from tests.benchmarks.consume_road import BROKERS, SOURCES, Road, new_results, road, single
from tests.benchmarks.load import print_load


class Sizes(NamedTuple):
    """Of a turn, and how many turns; seconds of an even pace."""

    messages: int
    rounds: int
    pace_s: float
    backlog: int


FULL = Sizes(messages=100_000, rounds=5, pace_s=20, backlog=100_000)
QUICK = Sizes(messages=30_000, rounds=2, pace_s=5, backlog=10_000)

Part = Callable[[Road, Sizes], bool]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--broker", action="append", choices=BROKERS, help="default: all")
    parser.add_argument("--quick", action="store_true", help="small sizes, for a look")
    parser.add_argument("--messages", type=int, help="of a turn of part A")
    parser.add_argument("--rounds", type=int, help="turns of parts A and B")
    args = parser.parse_args(argv)
    sizes = QUICK if args.quick else FULL
    sizes = sizes._replace(
        messages=args.messages or sizes.messages, rounds=args.rounds or sizes.rounds
    )
    print_inputs(sizes)
    good = [
        PARTS[part](there, sizes)
        for kind in args.broker or BROKERS
        for part in args.part or PARTS
        for there in one_road(kind)
    ]
    return 0 if all(good) else 1


def one_road(kind: str) -> Iterator[Road]:
    """New for each part: no backlog of other subscriptions, no rows of others."""
    with road(kind) as there:
        yield there
        print_load()


def print_inputs(sizes: Sizes) -> None:
    size = len(single(new_results()).body)
    print(f"{sizes.messages} messages a turn of one record of {size} bytes, of {SOURCES} metric")
    print(f"instances; {sizes.rounds} turns, and one before them that does not count")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores")
    print_load()


def part_a(there: Road, sizes: Sizes) -> bool:
    return one_record_a_message(there, sizes.messages, sizes.rounds)


def part_b(there: Road, sizes: Sizes) -> bool:
    return fifty_records_a_message(there, sizes.messages // 20, sizes.rounds)


def part_c(there: Road, sizes: Sizes) -> bool:
    return all([lag(there, 1000, sizes.pace_s), lag(there, 15, 1.5 * sizes.pace_s)])


def part_d(there: Road, sizes: Sizes) -> bool:
    small = memory(there, sizes.backlog, 10_000)
    return all([small, memory(there, sizes.backlog // 10, 100_000)])


PARTS: dict[str, Part] = {"A": part_a, "B": part_b, "C": part_c, "D": part_d}


if __name__ == "__main__":
    sys.exit(main())
