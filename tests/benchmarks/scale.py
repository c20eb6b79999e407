"""Everything that docs/scale.md and the simulation know about speed, measured in one run.

    python -m tests.benchmarks.scale [--broker NAME]... [--quick] [--into FILE]
    python -m tests.benchmarks.scale --add-rounds 2           of part G, to a file of this machine
    python -m tests.benchmarks.scale --waits                  of a file of this machine, again

For each kind of broker: part G of bench-consume (processes and brokers), part C (lag) with the
processor time of its parts, and the storm of one-shot publishers. The results replace those of the
same kind in tests/simulation/measured.json, together with the date, the machine and the commit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.benchmarks import publish_storm
from tests.benchmarks.consume_road import BROKERS, new_results, single, software
from tests.benchmarks.consume_scale import (
    BROKER_COUNTS,
    LAG_RATES,
    PREFETCH,
    WARM_UPS,
    Cell,
    batches,
    delivery_s,
    fleet,
    grid,
    measured_grid,
    paced,
)
from tests.benchmarks.load import print_load
from tests.simulation.law import fitted, print_law

MEASURED = Path(__file__).parents[1] / "simulation" / "measured.json"
MESSAGES, QUICK_MESSAGES = 48_000, 24_000
"""Of a backlog."""
ROUNDS = 3
PACE_S = 12.0
QUICK_PACE_S = 4.0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--broker", action="append", choices=BROKERS, help="default: all")
    parser.add_argument("--quick", action="store_true", help="small sizes, for a quick check")
    parser.add_argument("--messages", type=int, help="of a backlog (default: 48000)")
    rounds = parser.add_mutually_exclusive_group()
    rounds.add_argument("--rounds", type=int, help="of part G (default: 3, or 1 with --quick)")
    rounds.add_argument(
        "--add-rounds", type=int, metavar="N", help="measure only part G, and add it to the file"
    )
    rounds.add_argument("--waits", action="store_true", help="measure only the waits again")
    parser.add_argument("--into", type=Path, default=MEASURED, help="default: measured.json")
    args = parser.parse_args(argv)
    round_count = args.rounds or (1 if args.quick else ROUNDS)
    messages = args.messages or (QUICK_MESSAGES if args.quick else MESSAGES)
    if args.add_rounds:
        add_rounds(args.into, args.broker, args.add_rounds)
        return 0
    if args.waits:
        replace_waits(args.into, args.broker)
        return 0
    document = inputs(args.quick, messages)
    print(json.dumps(document, indent=1), flush=True)
    brokers = dict(json.loads(args.into.read_text())["brokers"]) if args.into.exists() else {}
    for kind in args.broker or BROKERS:
        with fleet(kind, max(BROKER_COUNTS)) as new_fleet:
            print(f"\n{software(new_fleet.first.broker)}: processes and brokers", flush=True)
            measured = {
                "software": software(new_fleet.first.broker),
                "measured_at": now(),
                **measured_grid(new_fleet, messages, round_count),
                "delivery_s": delivery_s(new_fleet, messages),
            }
            print_law(fitted([Cell(**cell) for cell in measured["cells"]]))
            duration_s = QUICK_PACE_S if args.quick else PACE_S
            measured["paces"] = [
                paced(new_fleet, rate, max(duration_s, 200 / rate))._asdict() for rate in LAG_RATES
            ]
            document |= batches(new_fleet.first)
        storm_sizes = publish_storm.QUICK if args.quick else publish_storm.FULL
        brokers[kind] = {**measured, "storm": publish_storm.storm(kind, storm_sizes)}
        args.into.write_text(json.dumps({**document, "brokers": brokers}, indent=1) + "\n")
        print_load()
    return 0


def add_rounds(file: Path, kinds: Sequence[str] | None, rounds: int) -> None:
    """Measure the grid of the file again, so that noise matters less: its cells are added."""
    document = read_again(file)
    for kind in kinds or document["brokers"]:
        with fleet(kind, max(BROKER_COUNTS)) as new_fleet:
            print(f"\n{software(new_fleet.first.broker)}: {rounds} more rounds", flush=True)
            cells = grid(new_fleet, document["backlog"], rounds)
        document["brokers"][kind]["cells"] += [cell._asdict() for cell in cells]
        document["brokers"][kind]["measured_at"] = now()
        file.write_text(json.dumps(document, indent=1) + "\n")
        print_load()


def replace_waits(file: Path, kinds: Sequence[str] | None) -> None:
    """Measure again how evenly the brokers of the file deliver, and how long a batch waits."""
    document = read_again(file)
    for kind in kinds or document["brokers"]:
        with fleet(kind, 1) as new_fleet:
            print(f"\n{software(new_fleet.first.broker)}: waits", flush=True)
            for _ in range(1 + WARM_UPS):
                times = delivery_s(new_fleet, document["backlog"])
            document["brokers"][kind]["delivery_s"] = times
            document |= batches(new_fleet.first)
        file.write_text(json.dumps(document, indent=1) + "\n")
        print_load()


def read_again(file: Path) -> dict[str, Any]:
    """The figures of this machine, of which this run measures some."""
    document: dict[str, Any] = json.loads(file.read_text())
    if document["machine"] != machine():
        raise SystemExit(f"{file} was measured on another machine: {document['machine']}")
    document["measured_at"] = now()
    document["load_before"] = max(document["load_before"], load_average())
    return document


def inputs(quick: bool, messages: int) -> dict[str, Any]:
    return {
        "measured_at": now(),
        "commit": commit(),
        "quick": quick,
        "load_before": load_average(),
        "machine": machine(),
        "backlog": messages,
        "message_bytes": len(single(new_results()).body),
        "prefetch": PREFETCH,
    }


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ")


def load_average() -> float:
    return round(os.getloadavg()[0], 1)


def commit() -> str:
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def machine() -> Mapping[str, Any]:
    """What kind of machine this is, without its name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "processor": models[0] if models else platform.machine(),
        "memory_gb": round(memory / 1e9),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    sys.exit(main())
