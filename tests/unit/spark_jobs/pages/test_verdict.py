"""The verdicts on figures."""

from __future__ import annotations

from fractions import Fraction

import pytest

from sam_pipeline.spark_jobs.pages.verdict import (
    DOWNTIME,
    MET,
    MISSED,
    MISSING,
    PARTLY,
    UNKNOWN,
    Verdict,
    availability_cell,
    verdict,
    worst_first,
)
from sam_pipeline.spark_jobs.rules.figures import Figure, Targets, figure_of
from sam_pipeline.spark_jobs.rules.seconds import Seconds

TARGETS = Targets()


def day(site: str = "A", **hours: int) -> Figure:
    """A site's day of that many hours in each status."""
    return figure_of((site,), Seconds(**{name: 3600 * count for name, count in hours.items()}))


@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        (day(ok=24), MET),
        (day(ok=20, unknown=4), PARTLY),
        (day(ok=12, critical=12), MISSED),
        (day(unknown=20, missing=4), UNKNOWN),
        (day(missing=24), MISSING),
    ],
)
def test_the_worst_missed_target_decides(figure: Figure, expected: Verdict) -> None:
    assert verdict(figure, TARGETS) is expected


@pytest.mark.parametrize("figure", [day(downtime=24), day(ok=12, downtime=12)])
def test_announced_downtime_alone_is_not_a_failure(figure: Figure) -> None:
    assert verdict(figure, TARGETS) is DOWNTIME


def test_a_failure_beside_a_downtime_is_a_failure() -> None:
    assert verdict(day(ok=10, critical=6, downtime=8), TARGETS) is MISSED


def test_a_figure_below_its_target_without_any_downtime_is_a_failure() -> None:
    targets = Targets(availability=Fraction(95), reliability=Fraction(80))

    assert verdict(day(ok=22, critical=2), targets) is MISSED


@pytest.mark.parametrize("status", ["critical", "downtime"])
def test_a_site_of_which_nearly_nothing_is_known_does_not_read_as_a_failure(status: str) -> None:
    assert verdict(day(missing=23, **{status: 1}), TARGETS) is MISSING
    assert verdict(day(unknown=23, **{status: 1}), TARGETS) is UNKNOWN


def test_announced_downtime_ranks_after_every_failure() -> None:
    figures = [
        day("B", ok=12, critical=12),
        day("A", ok=20, unknown=4),
        day("A", missing=24),
        day("A", downtime=24),
        day("C", ok=23, critical=1),
        day("A", ok=24),
        day("B", ok=24),
    ]
    best_first = figures[::-1]

    assert sorted(best_first, key=lambda figure: worst_first(figure, TARGETS)) == figures


def test_the_mark_of_a_downtime_is_for_days_that_it_does_not_explain() -> None:
    assert availability_cell(day(ok=20, downtime=4), TARGETS, 0).in_downtime
    assert not availability_cell(day(downtime=24), TARGETS, 0).in_downtime
