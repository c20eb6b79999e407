"""Values over a month as SVG: a line of the medians in a band from the least to the most of a day.

A plot is WIDTH x HEIGHT units and keeps its shape, so its texts are not distorted. The style sheet
gives it its colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from math import floor, log10

from sam_pipeline.spark_jobs.inputs.performance import DayValues
from sam_pipeline.spark_jobs.rules.days import Period, periods

WIDTH, HEIGHT = 320, 110
# The area of the values, below and to the right of the axes' texts.
LEFT, TOP, RIGHT, BOTTOM = 52, 8, 316, 90
_TICK_DAYS = 7


@dataclass(frozen=True)
class Tick:
    """A text at an axis; `at` is its place along it."""

    at: str
    text: str


@dataclass(frozen=True)
class Plot:
    """`band` and `line` are paths; the ticks are of the axes of values and of days."""

    band: str
    line: str
    values: Sequence[Tick]
    days: Sequence[Tick]


def plot(days: Sequence[DayValues], period: Period, unit: str) -> Plot:
    """The plot of a measure on the days that have values; days without any leave a gap."""
    low = min(0.0, min(day.least for day in days))
    high = max(0.0, max(day.most for day in days))
    step = _step(high - low)
    bottom = step * (Decimal(low) / step).to_integral_value(ROUND_FLOOR)
    top = max(bottom + step, step * (Decimal(high) / step).to_integral_value(ROUND_CEILING))
    day_width = (RIGHT - LEFT) / ((period.last - period.first).days + 1)

    def x(day: date, share: float = 0.5) -> str:
        return f"{LEFT + day_width * ((day - period.first).days + share):.1f}"

    def y(value: float | Decimal) -> str:
        share = (Decimal(value) - bottom) / (top - bottom)
        return f"{BOTTOM - float(share) * (BOTTOM - TOP):.1f}"

    band, line = [], []
    values_of = {day.day: day for day in days}
    for without_gap in periods(values_of):
        run = [values_of[day] for day in without_gap.days()]
        # A day is as wide as its column, so that a single one is visible.
        upper = [(x(d.day, share), y(d.most)) for d in run for share in (0, 1)]
        lower = [(x(d.day, share), y(d.least)) for d in run[::-1] for share in (1, 0)]
        middle = [(x(d.day), y(d.median)) for d in run]
        if len(run) == 1:
            middle = [(x(run[0].day, share), middle[0][1]) for share in (0, 1)]
        band.append(f"M{'L'.join(map(' '.join, [*upper, *lower]))}Z")
        line.append(f"M{'L'.join(map(' '.join, middle))}")
    ticks = [bottom, (bottom + top) / 2, top]
    return Plot(
        "".join(band),
        "".join(line),
        [Tick(y(value), f"{value_text(float(value))} {unit}".rstrip()) for value in ticks],
        [Tick(x(day), f"{day:%d}") for day in list(period.days())[::_TICK_DAYS]],
    )


def value_text(value: float) -> str:
    """At most three digits that matter."""
    return f"{float(f'{value:.3g}'):g}"


def _step(extent: float) -> Decimal:
    """1, 2 or 5 times a power of ten: at least a quarter of the extent."""
    if extent <= 0:
        return Decimal(1)
    least = extent / 4
    power = Decimal(10) ** floor(log10(least))
    return next((step * power for step in (1, 2, 5) if float(step * power) >= least), 10 * power)
