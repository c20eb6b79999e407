"""Plots of values: their axes, the line of medians and its band."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from sam_pipeline.spark_jobs.inputs.performance import DayValues
from sam_pipeline.spark_jobs.pages.drawing.plots import BOTTOM, TOP, plot, value_text
from sam_pipeline.spark_jobs.rules.days import month_of

FIRST = date(2026, 10, 1)
OCTOBER = month_of(FIRST)


def days(*numbers: int, low: float = 1, high: float = 3) -> list[DayValues]:
    return [
        DayValues(FIRST + timedelta(days=number - 1), low, (low + high) / 2, high)
        for number in numbers
    ]


def test_the_axis_of_values_has_round_ends_zero_and_a_unit() -> None:
    ticks = plot(days(1, 2, low=1.2, high=3.1), OCTOBER, "s").values

    assert [(tick.text, float(tick.at)) for tick in ticks] == [
        ("0 s", BOTTOM),
        ("2 s", (TOP + BOTTOM) / 2),
        ("4 s", TOP),
    ]


@pytest.mark.parametrize(
    ("low", "high", "top"),
    [(0, 0, "1"), (0, 0.0123, "0.015"), (0, 98, "100"), (0, 101, "150"), (3, 3, "3")],
)
def test_the_axis_ends_at_a_round_number_above_all_values(
    low: float, high: float, top: str
) -> None:
    assert plot(days(1, low=low, high=high), OCTOBER, "").values[-1].text == top


def test_negative_values_lower_the_axis() -> None:
    texts = [tick.text for tick in plot(days(1, low=-3, high=-1), OCTOBER, "C").values]

    assert texts == ["-3 C", "-1.5 C", "0 C"]


def test_days_without_values_leave_a_gap() -> None:
    assert plot(days(1, 2, 3), OCTOBER, "s").line.count("M") == 1
    assert plot(days(1, 2, 5, 9), OCTOBER, "s").line.count("M") == 3


def test_a_single_day_is_as_wide_as_its_column() -> None:
    start, end = plot(days(1), OCTOBER, "s").line.removeprefix("M").split("L")

    assert float(end.split()[0]) - float(start.split()[0]) > 5
    assert start.split()[1] == end.split()[1]


def test_the_axis_of_days_names_a_day_of_each_week() -> None:
    assert [t.text for t in plot(days(1), OCTOBER, "s").days] == ["01", "08", "15", "22", "29"]


@pytest.mark.parametrize(
    ("value", "text"), [(0.12345, "0.123"), (1234.5, "1230"), (2.0, "2"), (1e9, "1e+09")]
)
def test_a_value_has_three_digits(value: float, text: str) -> None:
    assert value_text(value) == text
