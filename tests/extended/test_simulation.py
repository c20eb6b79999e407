"""The model of docs/scale.md behaves as what it stands for, and fits what was measured."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.benchmarks.bare import STEP
from tests.simulation.measured import (
    MEASURED,
    Amdahl,
    Costs,
    MeasuredKind,
    fitted_amdahl,
    non_negative,
    read_measured,
)
from tests.simulation.model import Habits, World
from tests.simulation.plan import BUSY, broker_rate, consumer_rate, planned
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.validation import LAG_BOUND, RATE_BOUND, drained

COSTS = Costs(
    publish=40e-6,
    publish_burst=0.0,
    receipt_s=0.002,
    deliver=40e-6,
    delivery_s=[STEP * 40e-6],
    read=10e-6,
    load=30e-6,
    load_batch=0.0,
    row=20e-6,
    transaction=0.0,
    round_trips=1,
    batch_waits_s=[0.005],
)
ALL = read_measured()
KINDS = pytest.mark.parametrize("kind", ALL.kinds(), ids=lambda kind: kind.name)


def test_the_law_finds_cost_and_contention_and_nothing_negative() -> None:
    law = Amdahl(alone_us=20.0, contention=0.05)
    found = fitted_amdahl([1, 2, 4, 1], [law.us(count) for count in (1, 2, 4, 1)])
    noisy = fitted_amdahl([1, 2, 4], [22.0, 20.0, 18.0])
    terms = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])

    assert (found.alone_us, found.contention) == pytest.approx((20.0, 0.05))
    assert law.rate(law.cores(200_000)) == pytest.approx(200_000)
    assert (noisy.alone_us, noisy.contention) == pytest.approx((20.0, 0))
    assert non_negative(terms, np.array([1.0, 3.0, 5.0])) == pytest.approx((0.0, 22 / 14))


def test_messages_are_conserved_through_all_faults() -> None:
    unlucky = World(COSTS, 2, 2, capacity=3000)
    clients = unlucky.add_clients(groups=10, clients=100, rate=2000, tick_s=0.1, habits=Habits())
    first, second = unlucky.brokers
    for at_s, action in (
        (2.0, first.lose),
        (4.0, lambda: setattr(unlucky.database, "up", False)),
        (9.0, first.back),
        (9.5, second.lose),
        (11.0, lambda: setattr(unlucky.database, "up", True)),
        (12.0, lambda: setattr(clients[0], "reachable", False)),
        (14.0, second.back),
        *((float(second_number), unlucky.check_conservation) for second_number in range(1, 20)),
    ):
        unlucky.at(at_s, action)

    unlucky.run(20.0)

    assert unlucky.ledger.repeated > 0
    assert unlucky.ledger.rows > 0


def test_a_full_broker_stops_its_publishers_and_a_full_spool_refuses() -> None:
    full = World(COSTS, 1, 2, capacity=5000)
    full.database.up = False
    habits = Habits(spool_max_messages=20)
    full.add_clients(groups=10, clients=100, rate=2000, tick_s=0.1, habits=habits)
    full.at(40.0, lambda: setattr(full.database, "up", True))

    full.run(30.0)
    stored, spooled = full.brokers[0].stored, full.spooled
    full.run(80.0)

    assert 4900 < stored <= 5000
    assert spooled == 2000
    assert full.ledger.refused > 20_000
    assert full.spooled < 200


@KINDS
def test_a_drain_by_one_process_is_within_the_bound_and_a_plan_keeps_a_reserve(
    kind: MeasuredKind,
) -> None:
    cells = sorted(kind.grid[1, 1], key=lambda cell: cell.rate)
    middle = cells[len(cells) // 2]

    off = drained(ALL, kind, middle) / middle.rate - 1
    plan = planned(kind, 100_000)

    assert abs(off) <= RATE_BOUND or ALL.is_preliminary
    assert plan.rate <= BUSY * 1.001 * plan.brokers * broker_rate(kind)
    assert plan.rate <= BUSY * 1.001 * plan.consumers * consumer_rate(kind)
    assert plan.rate < kind.law.database.rate(plan.database_cores)


def test_the_results_are_those_of_the_measurement_within_the_bounds() -> None:
    results = json.loads(MEASURED.with_name("results.json").read_text())

    rerun = "run `python -m tests.simulation results` and `make docs`"
    assert results["measured_at"] == ALL.document["measured_at"], rerun
    assert set(results["scenarios"]) == set(SCENARIOS), rerun
    runs = {(kind, run): model / own - 1 for kind, run, _, own, model in results["validation"]}
    bounds = {run: LAG_BOUND if run[1].endswith("/s") else RATE_BOUND for run in runs}
    assert len(runs) == 33
    assert [run for run, off in runs.items() if abs(off) > bounds[run]] == [] or ALL.is_preliminary
