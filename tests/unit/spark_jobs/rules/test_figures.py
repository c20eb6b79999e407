"""Rules: figures of seconds, their rounding, targets and bad months."""

from __future__ import annotations

from datetime import date
from fractions import Fraction

import numpy as np
import pytest

from sam_pipeline.spark_jobs.rules.figures import (
    Figure,
    Targets,
    ends_bad_row,
    is_bad,
    months_in_a_row,
)
from sam_pipeline.spark_jobs.rules.seconds import Seconds, rounded, short
from sam_pipeline.spark_jobs.rules.shares import Integers, availability, reliability
from sam_pipeline.spark_jobs.rules.statuses import STATUSES

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
