"""Figures of stored seconds, groups of sites, targets."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from sam_pipeline.spark_jobs.rules.figures import Figure, Targets
from sam_pipeline.spark_jobs.rules.groups import Member, group_figures
from sam_pipeline.spark_jobs.rules.seconds import Seconds, rounded, short
from sam_pipeline.spark_jobs.runs.published import DayFigure
from sam_pipeline.spark_jobs.runs.summary import added_up, group_means

DAY = date(2026, 11, 14)


def test_unknown_time_is_left_out_and_downtime_counts_for_availability_only() -> None:
    seconds = Seconds(ok=50, warning=10, critical=20, unknown=5, missing=6, downtime=20, excluded=9)

    assert seconds.total == 120
    assert seconds.availability == Fraction(100 * 60, 100)
    assert seconds.reliability == Fraction(100 * 60, 80)
    assert seconds.unknown_share == Fraction(100 * 20, 120)


@pytest.mark.parametrize("seconds", [Seconds(missing=86_400), Seconds()])
def test_without_known_time_the_figure_is_undefined(seconds: Seconds) -> None:
    assert seconds.availability is None and seconds.reliability is None


def test_a_period_adds_seconds_and_divides_once() -> None:
    days = [
        DayFigure(DAY, ("A",), Seconds(ok=50, missing=50)),
        DayFigure(DAY + timedelta(days=1), ("A",), Seconds(ok=50, critical=50)),
    ]

    figure = added_up(days)

    # The mean of the two days would be 75.
    assert rounded(figure.availability) == Decimal("66.66667")
    assert figure.days == 2


@pytest.mark.parametrize(
    ("value", "shown"),
    [(Fraction(1, 3), "0.33333"), (Fraction(100, 32_000), "0.00313"), (Fraction(100), "100.00000")],
)
def test_figures_are_rounded_half_up(value: Fraction, shown: str) -> None:
    assert str(rounded(value)) == shown


def test_a_figure_is_not_rounded_up_to_a_whole_number() -> None:
    assert short(Fraction(99_999, 1000)) == "99.99"
    assert short(Fraction(79_996, 1000)) == "79.99"
    assert short(Fraction(200, 3)) == "66.67"
    assert short(Fraction(100)) == "100.00"
    assert short(None) == "-"


def test_groups_weigh_their_sites_by_weight_plus_one() -> None:
    heavy, light, silent = (Member("region", "N", s, w) for s, w in (("A", 2), ("B", 0), ("C", 9)))
    seconds = {
        heavy: Seconds(ok=80, critical=20),
        light: Seconds(ok=100),
        silent: Seconds(missing=9),
    }

    [figure] = group_figures(seconds)

    assert figure.availability == Fraction(3 * 80 + 100, 4)
    assert (figure.sites_known, figure.sites_expected) == (2, 3)


def test_a_site_counts_for_a_group_on_the_days_it_was_a_member() -> None:
    next_day = DAY + timedelta(days=1)
    sites = [
        DayFigure(DAY, ("A",), Seconds(critical=100)),
        DayFigure(next_day, ("A",), Seconds(ok=100)),
    ]

    [figure] = group_means([(next_day, Member("region", "N", "A", 0))], sites)

    assert figure.availability == 100


def test_a_group_with_too_few_known_sites_misses_its_coverage() -> None:
    figure = Figure(("region", "N"), Fraction(100), Fraction(100), sites_expected=2, sites_known=1)

    [miss] = figure.misses(Targets())

    assert str(miss) == "share of sites with data 50.00 is below 90"


def test_a_figure_equal_to_its_target_meets_it() -> None:
    on_the_dot = Seconds(ok=72, critical=12, downtime=6, unknown=10)
    figure = Figure(("A",), on_the_dot.availability, on_the_dot.reliability, on_the_dot)

    assert figure.availability == 80 and figure.unknown == 10
    assert figure.misses(Targets()) == []
