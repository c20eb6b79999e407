"""Three bad months in a row."""

from __future__ import annotations

from datetime import date
from fractions import Fraction

import pytest

from sam_pipeline.spark_jobs.rules.bad_months import ends_bad_row, is_bad, months_in_a_row
from sam_pipeline.spark_jobs.rules.figures import Figure, Targets

JANUARY, DECEMBER, NOVEMBER, OCTOBER = (
    date(2026, 1, 1),
    date(2025, 12, 1),
    date(2025, 11, 1),
    date(2025, 10, 1),
)


@pytest.mark.parametrize(
    ("availability", "reliability", "bad"),
    [(79, 90, True), (80, 84, True), (80, 85, False), (None, None, False)],
)
def test_a_month_is_bad_below_the_target_of_availability_or_reliability(
    availability: int | None, reliability: int | None, bad: bool
) -> None:
    percents = (None if p is None else Fraction(p) for p in (availability, reliability))

    assert is_bad(Figure(("A",), *percents), Targets()) == bad


def test_too_few_sites_with_data_make_no_bad_month() -> None:
    group = Figure(("tier", "2"), Fraction(90), Fraction(90), sites_expected=4, sites_known=1)

    assert group.misses(Targets()) and not is_bad(group, Targets())


@pytest.mark.parametrize(
    ("bad", "in_a_row"),
    [
        ({JANUARY, DECEMBER, NOVEMBER}, True),
        ({JANUARY, DECEMBER, NOVEMBER, OCTOBER}, True),
        ({JANUARY, DECEMBER, OCTOBER}, False),
        ({DECEMBER, NOVEMBER, OCTOBER}, False),
        (set(), False),
    ],
)
def test_three_successive_months_must_be_bad_over_the_turn_of_a_year(
    bad: set[date], in_a_row: bool
) -> None:
    assert months_in_a_row(JANUARY) == [JANUARY, DECEMBER, NOVEMBER]
    assert ends_bad_row(JANUARY, bad) == in_a_row
