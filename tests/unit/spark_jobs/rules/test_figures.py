"""Rules: figures of seconds, their rounding, targets and bad months."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from fractions import Fraction

import numpy as np
import pytest

from sam_pipeline.spark_jobs.rules.figures import (
    Figure,
    Member,
    MemberDay,
    Targets,
    ends_bad_row,
    group_figures,
    group_totals,
    is_bad,
    months_in_a_row,
    weight_used,
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


# Groups of sites ----------------------------------------------------------------------------------

DAY_S = 86_400
UP, FAILING, SILENT = Seconds(ok=DAY_S), Seconds(critical=DAY_S), Seconds(missing=DAY_S)
DOWN = Seconds(downtime=DAY_S)
OCTOBER = [date(2026, 10, 1) + timedelta(days=number) for number in range(31)]


def member_days(
    site: str, weight: int, seconds: Seconds, days: Sequence[date] = OCTOBER[:1]
) -> list[MemberDay]:
    return [MemberDay(day, Member("federation", "F", site, weight), seconds) for day in days]


def figures(*days: Sequence[MemberDay]) -> tuple[str, str, str]:
    """Availability, reliability and the numbers of sites of the only group."""
    [group] = group_figures(day for of_member in days for day in of_member)
    sites = f"{group.sites_known} of {group.sites_expected}"
    return short(group.availability), short(group.reliability), sites


def test_the_weight_of_a_site_is_the_announced_one_or_1_and_argo_adds_1() -> None:
    assert [weight_used(weight) for weight in (None, 0, 1, 7)] == [1, 0, 1, 7]
    assert [weight_used(weight, argo=True) for weight in (None, 0, 1, 7)] == [1, 1, 2, 8]


def test_the_figure_of_a_group_on_a_day_is_the_weighted_mean_of_the_known_figures() -> None:
    worse = Seconds(ok=6656, critical=3344)

    assert figures(member_days("A", 1, worse), member_days("B", 3, UP)) == (
        *("91.64", "91.64", "2 of 2"),
    )
    assert figures(
        member_days("A", 1, DOWN), member_days("B", 3, UP), member_days("C", 500, SILENT)
    ) == ("75.00", "100.00", "2 of 3")


def test_a_site_that_joins_on_the_last_day_of_a_month_counts_for_a_day() -> None:
    three = [member_days(site, 100, UP, OCTOBER) for site in "ABC"]
    fourth = member_days("D", 100, FAILING, OCTOBER[-1:])

    assert figures(*three) == ("100.00", "100.00", "3 of 3")
    # 3 · 31 days of 100 and one of 0, of the same weight.
    assert figures(*three, fourth) == ("98.94", "98.94", "4 of 4")
    [last] = group_figures(day for of in (*three, fourth) for day in of if day.day == OCTOBER[-1])
    assert last.availability == 75


def test_a_renamed_site_counts_once_a_day_and_a_changed_weight_from_its_day_on() -> None:
    old, new = (
        member_days(name, 5, UP, days)
        for name, days in (("OLD", OCTOBER[:11]), ("NEW", OCTOBER[11:]))
    )
    other = member_days("OTHER", 5, FAILING, OCTOBER)
    heavier = [*member_days("A", 1, UP, OCTOBER[:30]), *member_days("A", 31, UP, OCTOBER[30:])]

    assert figures(old, new, other) == ("50.00", "50.00", "3 of 3")
    # The weights of A add up to 61, those of B to 31.
    assert figures(heavier, member_days("B", 1, FAILING, OCTOBER))[0] == short(Fraction(6100, 92))


def test_a_member_does_not_weigh_on_days_without_a_value() -> None:
    silent = [*member_days("A", 1, UP, OCTOBER[:1]), *member_days("A", 9, SILENT, OCTOBER[1:])]
    down = [*member_days("A", 1, UP, OCTOBER[:1]), *member_days("A", 9, DOWN, OCTOBER[1:2])]
    failing = member_days("B", 1, FAILING, OCTOBER[:1])

    assert figures(silent, failing) == ("50.00", "50.00", "2 of 2")
    # In the reliability A weighs 1, as it has none on the second day.
    assert figures(down, failing)[1] == "50.00"


def test_a_group_whose_weights_are_all_0_has_no_figure() -> None:
    [group] = group_totals(member_days("A", 0, UP))

    assert (group.figure.availability, group.figure.reliability) == (None, None)
    assert group.figure.has_no_weight and group.figure.sites_known == 1
    assert group.share(group.members[0]) is None
    assert figures(member_days("A", 0, UP), member_days("B", 1, FAILING)) == (
        *("0.00", "0.00", "2 of 2"),
    )


@pytest.mark.parametrize("day", range(3))
def test_a_period_of_one_day_equals_that_day(day: int) -> None:
    seconds = (UP, Seconds(ok=1, critical=2, missing=9), SILENT, DOWN, FAILING)
    days = [
        MemberDay(OCTOBER[number], Member("tier", "2", name, (number + place) % 4), of)
        for number in range(3)
        for place, (name, of) in enumerate(zip("ABCDE", seconds[number:] + seconds, strict=False))
    ]
    of_day = [each for each in days if each.day == OCTOBER[day]]

    [figure] = group_figures(of_day)

    known = [each for each in of_day if each.seconds.availability is not None]
    weights = sum(each.member.weight for each in known)
    by_hand = sum((each.seconds.availability or 0) * each.member.weight for each in known)
    assert figure.availability == by_hand / weights
