"""Lines over months."""

from __future__ import annotations

from datetime import date
from fractions import Fraction

from sam_pipeline.spark_jobs.pages.drawing.lines import line_chart
from sam_pipeline.spark_jobs.rules.figures import Figure

MONTHS = [date(2026, month, 1) for month in (8, 9, 10)]
TARGET = Fraction(80)


def month(availability: int | None, reliability: int | None = None) -> Figure:
    values = (None if value is None else Fraction(value) for value in (availability, reliability))
    return Figure((), *values)


def test_a_month_without_a_figure_interrupts_the_line() -> None:
    chart = line_chart(MONTHS, [month(90), None, month(95)], TARGET)

    availability = chart.lines[-1]
    assert availability.d.count("M") == 2 and "L" not in availability.d
    assert chart.titles[1] == "September 2026: availability -, reliability -"


def test_a_target_below_all_figures_is_not_drawn_and_a_missed_one_is() -> None:
    good = line_chart(MONTHS, [month(99, 99)] * 3, TARGET)
    bad = line_chart(MONTHS, [month(70, 99)] * 3, TARGET)

    assert (good.low, good.target) == (95, None)
    assert bad.low == 65 and bad.target is not None


def test_months_apart_from_each_other_make_no_line_worth_drawing() -> None:
    chart = line_chart(MONTHS, [month(90), None, month(95)], TARGET)
    connected = line_chart(MONTHS, [month(90, 99), month(None, 99), month(None, 99)], TARGET)

    assert not chart.is_worth_drawing
    assert connected.is_worth_drawing


def test_figures_of_0_and_100_are_within_the_drawing() -> None:
    chart = line_chart(MONTHS, [month(0), month(100), None], TARGET)

    heights = [
        int(point.split()[1].rstrip("h0") or 0) for point in chart.lines[-1].dots.split("M")[1:]
    ]
    assert heights == [92, 8]
