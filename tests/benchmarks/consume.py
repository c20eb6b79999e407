"""Throughput, latency and memory of `sam-consume`, compared with other consumers.

    python -m tests.benchmarks.consume [--part A]... [--broker NAME]... [--quick]

    A  one record per message: compared with a bare client that only reads and acks, and with the
       consumer that a Java engineer would write in thirty lines
    B  fifty records per message: compared with the bulk door, fed from memory
    C  the time from a message to its row, at 1 000 and at 15 messages per second
    D  memory with a backlog, while the database is locked and while the backlog is loaded
    E  a policy of 10 000 publishers, compared with none
    F  signed messages, compared with unsigned ones
    G  1, 2 and 4 processes of one shared name, with 1, 2 and 3 brokers: the law of their rates

On a private ActiveMQ, Artemis and RabbitMQ with persistent messages, into a private PostgreSQL with
durable commits. The contestants take turns, so that other load affects all of them, and the median
of the ratios of each turn counts. Start-up is not timed: a turn begins with the subscription (for
`sam-consume` with its first commit, whose rows do not count) and ends with the last commit.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.benchmarks.consume_drain import fifty_records_a_message, one_record_a_message
from tests.benchmarks.consume_lag import lag
from tests.benchmarks.consume_memory import memory
from tests.benchmarks.consume_policy import policy_costs
from tests.benchmarks.consume_road import (
    BROKERS,
    SOURCES,
    Road,
    new_results,
    road,
    single,
    software,
)
from tests.benchmarks.consume_scale import BROKER_COUNTS, fleet, grid
from tests.benchmarks.consume_signed import signed_messages
from tests.benchmarks.load import print_load
from tests.simulation.law import fitted, print_law


class Sizes(NamedTuple):
    """Messages of a turn, number of turns, seconds at an even pace, messages of a backlog."""

    messages: int
    rounds: int
    pace_s: float
    backlog: int


FULL = Sizes(messages=100_000, rounds=5, pace_s=20, backlog=100_000)
QUICK = Sizes(messages=30_000, rounds=2, pace_s=5, backlog=10_000)

Part = Callable[[str, Sizes], bool]
"""Measures a kind of broker; returns whether the bounds are met."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--broker", action="append", choices=BROKERS, help="default: all")
    parser.add_argument("--quick", action="store_true", help="small sizes, for a quick check")
    parser.add_argument("--messages", type=int, help="of a turn of part A")
    parser.add_argument("--rounds", type=int, help="turns of parts A and B")
    args = parser.parse_args(argv)
    sizes = QUICK if args.quick else FULL
    sizes = sizes._replace(
        messages=args.messages or sizes.messages, rounds=args.rounds or sizes.rounds
    )
    print_inputs(sizes)
    good = [
        PARTS[part](kind, sizes) for kind in args.broker or BROKERS for part in args.part or PARTS
    ]
    return 0 if all(good) else 1


def on_a_road(part: Callable[[Road, Sizes], bool]) -> Part:
    """The part on a new road, without the backlog and rows of other parts."""

    def measure(kind: str, sizes: Sizes) -> bool:
        with road(kind) as new_road:
            is_good = part(new_road, sizes)
        print_load()
        return is_good

    return measure


def print_inputs(sizes: Sizes) -> None:
    size = len(single(new_results()).body)
    print(f"{sizes.messages} messages a turn of one record of {size} bytes, of {SOURCES} metric")
    print(f"instances; {sizes.rounds} turns, and one before them that does not count")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores")
    print_load()


def part_a(road: Road, sizes: Sizes) -> bool:
    return one_record_a_message(road, sizes.messages, sizes.rounds)


def part_b(road: Road, sizes: Sizes) -> bool:
    return fifty_records_a_message(road, sizes.messages // 20, sizes.rounds)


def part_c(road: Road, sizes: Sizes) -> bool:
    return all([lag(road, 1000, sizes.pace_s), lag(road, 15, 1.5 * sizes.pace_s)])


def part_d(road: Road, sizes: Sizes) -> bool:
    small = memory(road, sizes.backlog, 10_000)
    return all([small, memory(road, sizes.backlog // 10, 100_000)])


def part_e(road: Road, sizes: Sizes) -> bool:
    return policy_costs(road, sizes.messages)


def part_f(road: Road, sizes: Sizes) -> bool:
    return signed_messages(road, sizes.messages, sizes.rounds)


def part_g(kind: str, sizes: Sizes) -> bool:
    with fleet(kind, max(BROKER_COUNTS)) as new_fleet:
        print(f"\n{software(new_fleet.first.broker)}: processes and brokers", flush=True)
        print_law(fitted(grid(new_fleet, sizes.messages, max(sizes.rounds // 2, 1))))
    print_load()
    return True


PARTS: dict[str, Part] = {
    "A": on_a_road(part_a),
    "B": on_a_road(part_b),
    "C": on_a_road(part_c),
    "D": on_a_road(part_d),
    "E": on_a_road(part_e),
    "F": on_a_road(part_f),
    "G": part_g,
}


if __name__ == "__main__":
    sys.exit(main())
