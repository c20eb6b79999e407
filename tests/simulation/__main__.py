"""The model behind docs/scale.md: against the measured runs, and on bad days.

    python -m tests.simulation validate                     the model against the measured runs
    python -m tests.simulation plan --rate 20000            brokers, consumers, cores, disks
    python -m tests.simulation scenarios [NAME]...          50,000 clients, 100,000 messages/s
    python -m tests.simulation results                      all of it, for `make docs`

All read tests/simulation/measured.json, which `make bench-scale` writes. `results` writes
results.json. Exit 1 if the model is further off than its bounds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.simulation.measured import Measured, MeasuredKind, read_measured, written
from tests.simulation.plan import BROKER_CORES, BUSY, planned
from tests.simulation.scenarios import SCENARIOS, Figures
from tests.simulation.validation import Comparison, compared

RESULTS = Path(__file__).with_name("results.json")
KIND = "artemis"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("validate", "plan", "scenarios", "results"))
    parser.add_argument("scenario", nargs="*", help="default: all")
    parser.add_argument("--broker", default=KIND, help=f"of the scenarios (default: {KIND})")
    parser.add_argument("--rate", type=float, default=100_000, help="messages/s of a plan")
    args = parser.parse_args(argv)
    if unknown := set(args.scenario) - set(SCENARIOS):
        parser.error(f"unknown scenarios: {', '.join(unknown)}; known: {', '.join(SCENARIOS)}")
    measured = read_measured()
    print(f"measured {measured.document['measured_at']}, load {measured.document['load_before']}")
    if args.command == "plan":
        for kind in measured.kinds():
            print_plan(kind, args.rate)
        return 0
    rows = validated(measured) if args.command in ("validate", "results") else []
    if args.command != "validate":
        outcomes = simulated(measured.kind(args.broker), args.scenario or list(SCENARIOS))
        if args.command == "results":
            rounded_figures = {
                name: {key: rounded(value) for key, value in figures.items()}
                for name, figures in outcomes.items()
            }
            document = {"measured_at": measured.document["measured_at"], "broker": args.broker}
            pairs = [[*row[:3], rounded(row.measured), rounded(row.simulated)] for row in rows]
            document |= {"validation": pairs, "scenarios": rounded_figures}
            RESULTS.write_text(written(document) + "\n")
    return 0 if all(row.is_good for row in rows) else 1


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


def validated(measured: Measured) -> Sequence[Comparison]:
    rows = [row for kind in measured.kinds() for row in compared(measured, kind)]
    print(f"  {'broker':10}{'run':>8}  {'figure':12}{'measured':>10}{'model':>10}{'off':>8}  bound")
    for row in rows:
        digits = 0 if row.measured > 100 else 3
        print(
            f"  {row.kind:10}{row.run:>8}  {row.figure:12}{row.measured:10.{digits}f}"
            f"{row.simulated:10.{digits}f}{row.off:+8.0%}  {row.bound:.0%}"
            f"{'' if row.is_good else '  MISSED'}"
        )
    return rows


def print_plan(kind: MeasuredKind, rate: float) -> None:
    plan = planned(kind, rate)
    print(
        f"  {kind.name}: {plan.rate:g} messages/s at {BUSY:.0%}: {plan.brokers} brokers of"
        f" {BROKER_CORES} cores, {plan.consumers} consumer processes, {plan.database_cores} cores"
        f" of PostgreSQL on {plan.databases} machines, {plan.log_mb_s:.1f} MB/s of log,"
        f" {plan.disk_gb_day:.0f} GB of disk a day; first at its limit: {plan.first}"
    )


def simulated(kind: MeasuredKind, names: Sequence[str]) -> dict[str, Figures]:
    print(f"simulated with {kind.document['software']}")
    outcomes = {}
    for name in names:
        outcomes[name] = SCENARIOS[name](kind)
        figures = (f"{key} {value:,.4g}" for key, value in outcomes[name].items())
        print(f"  {name}: {', '.join(figures)}", flush=True)
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
