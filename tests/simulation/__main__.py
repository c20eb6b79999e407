"""Scaling: the law, the model against measured runs, the large scenarios, and their plots.

    python -m tests.simulation law                          where each component saturates
    python -m tests.simulation validate                     the model against the measured runs
    python -m tests.simulation plan --rate 20000            brokers, consumers, cores, disks
    python -m tests.simulation scenarios [NAME]...          50,000 clients, 100,000 messages/s
    python -m tests.simulation plots                        all of it, into docs/pictures/

All read tests/simulation/measured.json, which `make bench-scale` writes, and print what it was
measured on. Exit 1 if the model is further off than its bounds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from tests.simulation.costs import Measured, MeasuredKind, read_measured
from tests.simulation.law import print_law
from tests.simulation.plan import BROKER_CORES, BUSY, Plan, planned
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.validation import validate

KIND = "artemis"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("law", "validate", "plan", "scenarios", "plots"))
    parser.add_argument("scenario", nargs="*", help="default: all")
    parser.add_argument("--broker", default=KIND, help=f"of the scenarios (default: {KIND})")
    parser.add_argument("--rate", type=float, default=100_000, help="messages/s of a plan")
    args = parser.parse_args(argv)
    if unknown := set(args.scenario) - set(SCENARIOS):
        parser.error(f"unknown scenarios: {', '.join(unknown)}; known: {', '.join(SCENARIOS)}")
    measured = read_measured()
    measured.print_inputs()
    if args.command == "law":
        for kind in measured.kinds():
            print(kind.document["software"])
            print_law(kind.law)
    elif args.command == "validate":
        return print_validation(measured)
    elif args.command == "plan":
        for kind in measured.kinds():
            print_plan(kind, planned(kind, args.rate))
    elif args.command == "scenarios":
        print_scenarios(measured.kind(args.broker), args.scenario or list(SCENARIOS))
    else:
        from tests.simulation.plots import draw_all

        draw_all(measured, measured.kind(args.broker))
    return 0


def print_validation(measured: Measured) -> int:
    rows = validate(measured)
    print(f"  {'broker':10}{'run':>8}  {'figure':12}{'measured':>10}{'model':>10}{'off':>8}  bound")
    for row in rows:
        digits = 0 if row.measured > 100 else 3
        print(
            f"  {row.kind:10}{row.run:>8}  {row.figure:12}{row.measured:10.{digits}f}"
            f"{row.simulated:10.{digits}f}{row.off:+8.0%}  {row.bound:.0%}"
            f"{'' if row.is_good else '  MISSED'}"
        )
    return 0 if all(row.is_good for row in rows) else 1


def print_plan(kind: MeasuredKind, plan: Plan) -> None:
    print(
        f"  {kind.name}: {plan.rate:g} messages/s at {BUSY:.0%}: {plan.brokers} brokers of"
        f" {BROKER_CORES} cores, {plan.consumers} consumer processes, {plan.database_cores} cores"
        f" of PostgreSQL on {plan.databases} machines, {plan.log_mb_s:.1f} MB/s of log,"
        f" {plan.disk_gb_day:.0f} GB of disk a day; first at its limit: {plan.first}"
    )


def print_scenarios(kind: MeasuredKind, names: Sequence[str]) -> None:
    print(f"simulated with {kind.document['software']}")
    for name in names:
        began = time.perf_counter()
        outcome = SCENARIOS[name](kind)
        print(f"  {name} ({time.perf_counter() - began:.1f} s)")
        for figure, value in outcome.figures.items():
            print(f"    {figure:20}{value:16,.3f}".rstrip("0").rstrip("."), flush=True)


if __name__ == "__main__":
    sys.exit(main())
