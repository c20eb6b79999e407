"""Lines over months."""

from __future__ import annotations

from fractions import Fraction

from sam_pipeline.spark_jobs.pages.drawing.lines import line_chart

MONTHS = ["August", "September", "October"]


def test_a_month_without_a_figure_interrupts_the_line() -> None:
    chart = line_chart(MONTHS, [Fraction(90), None, Fraction(95)], [None] * 3, Fraction(80))

    availability = chart.lines[-1]
    assert availability.d.count("M") == 2 and "L" not in availability.d
    assert chart.titles[1] == "September: availability -, reliability -"


def test_a_target_below_all_figures_is_not_drawn_and_a_missed_one_is() -> None:
    good = line_chart(MONTHS, [Fraction(99)] * 3, [Fraction(99)] * 3, Fraction(80))
    bad = line_chart(MONTHS, [Fraction(70)] * 3, [Fraction(99)] * 3, Fraction(80))

    assert (good.low, good.target) == (95, None)
    assert bad.low == 65 and bad.target is not None


def test_months_apart_from_each_other_make_no_line_worth_drawing() -> None:
    apart = [Fraction(90), None, Fraction(95)]
    chart = line_chart(MONTHS, apart, [None] * 3, Fraction(80))
    connected = line_chart(MONTHS, [*apart[:2], None], [Fraction(99)] * 3, Fraction(80))

    assert not chart.is_worth_drawing
    assert connected.is_worth_drawing


def test_figures_of_0_and_100_are_within_the_drawing() -> None:
    chart = line_chart(MONTHS, [Fraction(0), Fraction(100), None], [None] * 3, Fraction(80))

    heights = [
        int(point.split()[1].rstrip("h0") or 0) for point in chart.lines[-1].dots.split("M")[1:]
    ]
    assert heights == [92, 8]
