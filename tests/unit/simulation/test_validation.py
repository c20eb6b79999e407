"""The model agrees with the runs in measured.json, and so do the plans."""

from __future__ import annotations

import pytest

from tests.simulation.costs import MeasuredKind, read_measured
from tests.simulation.plan import BUSY, broker_rate, consumer_rate, planned
from tests.simulation.validation import compared

MEASURED = read_measured()
KINDS = pytest.mark.parametrize("kind", MEASURED.kinds(), ids=lambda kind: kind.name)
quiet = pytest.mark.skipif(
    MEASURED.document["load_before"] > 2, reason="measured.json comes from a busy machine"
)


@quiet
@KINDS
def test_the_model_is_off_by_its_bounds_at_most(kind: MeasuredKind) -> None:
    rows = list(compared(MEASURED, kind))

    missed = [f"{row.run} {row.figure}: {row.off:+.0%}" for row in rows if not row.is_good]
    assert missed == []


@KINDS
def test_all_numbers_of_brokers_and_consumers_were_measured(kind: MeasuredKind) -> None:
    grid = {(cell.brokers, cell.consumers) for cell in kind.cells}

    assert grid == {(brokers, consumers) for brokers in (1, 2, 3) for consumers in (1, 2, 4)}
    assert {pace.rate for pace in kind.paces} == {15, 1000}


@KINDS
@pytest.mark.parametrize("rate", [1000, 10_000, 100_000])
def test_a_plan_keeps_a_reserve_everywhere(kind: MeasuredKind, rate: float) -> None:
    plan = planned(kind, rate)

    database = kind.law.database.rate(plan.database_cores / plan.databases)
    assert rate <= BUSY * 1.001 * plan.brokers * broker_rate(kind)
    assert rate <= BUSY * 1.001 * plan.consumers * consumer_rate(kind)
    assert rate < plan.databases * database
