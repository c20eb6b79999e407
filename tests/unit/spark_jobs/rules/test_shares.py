"""Figures from seconds per status: integer seconds, one rounding."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest

from sam_pipeline.spark_jobs.rules.days import DAY_S
from sam_pipeline.spark_jobs.rules.shares import (
    Integers,
    availability,
    reliability,
    seconds_per_status,
)
from sam_pipeline.spark_jobs.rules.statuses import STATUSES

HOUR = 3600


def seconds(**of_status: int) -> Integers:
    """One thing with these seconds per status."""
    assert set(of_status) <= set(STATUSES)
    return np.array([[of_status.get(status, 0) for status in STATUSES]])


def test_seconds_are_added_up_for_each_thing_and_status() -> None:
    rows = [(0, "OK", 10), (0, "CRITICAL", 20), (0, "OK", 1), (2, "EXCLUDED", 4)]
    columns = zip(*[(thing, STATUSES.index(name), s) for thing, name, s in rows], strict=True)

    added_up = seconds_per_status(*map(np.array, columns), things=3)

    assert added_up.tolist() == [
        *seconds(OK=11, CRITICAL=20).tolist(),
        *seconds().tolist(),
        *seconds(EXCLUDED=4).tolist(),
    ]


def test_figures_leave_out_unknown_time_and_reliability_also_downtimes() -> None:
    up, unknown, down = 7 * HOUR + 1, 4 * HOUR, 3 * HOUR
    rest = DAY_S - up - unknown - down
    day = seconds(OK=up - 1, WARNING=1, DOWNTIME=down, UNKNOWN=unknown, CRITICAL=rest)

    known = DAY_S - unknown
    assert exactly(availability(day)[0]) == round(Decimal(100 * up) / known, 5)
    assert exactly(reliability(day)[0]) == round(Decimal(100 * up) / (known - down), 5)


def test_a_figure_is_rounded_half_up() -> None:
    # 100 * 1 / 32 000 = 0.003125, half way between two figures of five decimals.
    day = seconds(OK=1, CRITICAL=31_999, MISSING=DAY_S - 32_000)

    assert exactly(availability(day)[0]) == Decimal("0.00313")


@pytest.mark.parametrize("status", ["MISSING", "UNKNOWN", "EXCLUDED"])
def test_without_known_time_there_is_no_figure(status: str) -> None:
    day = seconds(**{status: DAY_S})

    assert availability(day).mask.all() and reliability(day).mask.all()


def test_a_day_in_downtime_has_availability_zero_and_no_reliability() -> None:
    day = seconds(DOWNTIME=DAY_S)

    assert availability(day).tolist() == [0]
    assert reliability(day).tolist() == [None]


def exactly(value: float) -> Decimal:
    """The figure as it is written to the database."""
    return Decimal(repr(float(value)))
