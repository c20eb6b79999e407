"""Rules: folds of statuses, figures of seconds, groups of sites, targets, days and bad months."""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from sam_pipeline.spark_jobs.rules.bad_months import ends_bad_row, is_bad, months_in_a_row
from sam_pipeline.spark_jobs.rules.figures import Figure, Targets
from sam_pipeline.spark_jobs.rules.seconds import Seconds, rounded, short
from sam_pipeline.spark_jobs.rules.shares import (
    Integers,
    availability,
    reliability,
)
from sam_pipeline.spark_jobs.rules.statuses import AND, FOLDED, OR, STATUSES, Operation


def fold(operation: Operation, *states: str) -> str:
    present = sum(1 << FOLDED.index(state) for state in set(states))
    return STATUSES[operation.answers[present]]


@pytest.mark.parametrize(
    ("operation", "order"),
    [
        (AND, "OK WARNING UNKNOWN MISSING DOWNTIME CRITICAL"),
        (OR, "MISSING DOWNTIME UNKNOWN CRITICAL WARNING OK"),
    ],
)
def test_of_several_states_the_latest_in_the_order_of_the_operation_is_the_result(
    operation: Operation, order: str
) -> None:
    states = order.split()
    for (low, a), (high, b) in product(enumerate(states), repeat=2):
        assert fold(operation, a, b) == states[max(low, high)]
    assert fold(operation, *FOLDED) == states[-1]
    assert fold(operation, *states[1:4]) == states[3]
    assert fold(operation) == "EXCLUDED"


# The kernel's figures, of arrays ------------------------------------------------------------------


def of_one(**of_status: int) -> Integers:
    """One thing with these seconds per status."""
    assert set(of_status) <= set(STATUSES)
    return np.array([[of_status.get(status, 0) for status in STATUSES]])


@pytest.mark.parametrize(
    ("seconds", "of_availability", "of_reliability"),
    [
        (
            of_one(OK=25_200, WARNING=1, DOWNTIME=10_800, UNKNOWN=14_400, CRITICAL=35_999),
            *(35.00139, 41.1781),
        ),
        # 100 * 1 / 32 000 = 0.003125, half way between two figures of five decimals.
        (of_one(OK=1, CRITICAL=31_999, MISSING=54_400), 0.00313, 0.00313),
        *((of_one(**{name: 86_400}), None, None) for name in ("MISSING", "UNKNOWN", "EXCLUDED")),
        (of_one(DOWNTIME=86_400), 0, None),
    ],
)
def test_figures_leave_out_what_is_not_known_and_reliability_also_downtimes(
    seconds: Integers, of_availability: float | None, of_reliability: float | None
) -> None:
    assert availability(seconds).tolist() == [of_availability]
    assert reliability(seconds).tolist() == [of_reliability]


# Figures of what is stored ------------------------------------------------------------------------


def test_unknown_time_is_left_out_and_downtime_counts_for_availability_only() -> None:
    seconds = Seconds(ok=50, warning=10, critical=20, unknown=5, missing=6, downtime=20, excluded=9)

    assert seconds.total == 120
    assert seconds.availability == Fraction(100 * 60, 100)
    assert seconds.reliability == Fraction(100 * 60, 80)
    assert seconds.unknown_share == Fraction(100 * 20, 120)
    for unknown in (Seconds(missing=86_400), Seconds()):
        assert unknown.availability is None and unknown.reliability is None


def test_figures_are_rounded_half_up_but_not_to_a_whole_number() -> None:
    exact = (Fraction(1, 3), Fraction(100, 32_000), Fraction(100))
    assert [str(rounded(value)) for value in exact] == ["0.33333", "0.00313", "100.00000"]
    exact = (Fraction(99_999, 1000), Fraction(79_996, 1000), Fraction(200, 3), Fraction(100))
    assert [*map(short, exact), short(None)] == ["99.99", "79.99", "66.67", "100.00", "-"]


def test_a_figure_equal_to_its_target_meets_it_and_a_group_also_needs_coverage() -> None:
    on_the_dot = Seconds(ok=72, critical=12, downtime=6, unknown=10)
    site = Figure(("A",), on_the_dot.availability, on_the_dot.reliability, on_the_dot)
    group = Figure(("region", "N"), Fraction(100), Fraction(100), sites_expected=2, sites_known=1)

    assert site.availability == 80 and site.unknown == 10
    assert site.misses(Targets()) == []
    [miss] = group.misses(Targets())
    assert str(miss) == "share of sites with data 50.00 is below 90"
    assert not is_bad(group, Targets())


def test_a_month_is_bad_below_the_target_of_availability_or_reliability() -> None:
    for percents, bad in (((79, 90), True), ((80, 84), True), ((80, 85), False)):
        assert is_bad(Figure(("A",), *map(Fraction, percents)), Targets()) == bad
    assert not is_bad(Figure(("A",), None, None), Targets())


def test_three_successive_months_must_be_bad_over_the_turn_of_a_year() -> None:
    months = [date(2026, 1, 1), date(2025, 12, 1), date(2025, 11, 1), date(2025, 10, 1)]

    assert months_in_a_row(months[0]) == months[:3]
    for bad in (months[:3], months):
        assert ends_bad_row(months[0], set(bad))
    for bad in (months[1:], [*months[:2], months[3]], []):
        assert not ends_bad_row(months[0], set(bad))
