"""Percentages of successive months as lines of an SVG, one column per month.

A column is 100 units wide, the drawing 100 high, and it scales to any width; the style sheet sets
widths in pixels. A dot is a line of no length with a round end, which scaling does not distort.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Protocol

from sam_pipeline.spark_jobs.rules.seconds import short

AVAILABILITY, RELIABILITY = "la", "lr"
_MARGIN = 8
_STEP = 5


@dataclass(frozen=True)
class MonthLine:
    """A line and the dots on it; `kind` is its class in the style sheet."""

    kind: str
    d: str
    dots: str


@dataclass(frozen=True)
class LineChart:
    """Lines on a common scale from `low` to 100 percent; `titles` describe the columns.

    `target` is the height of the target, or None if it is below the scale.
    """

    titles: Sequence[str]
    low: int
    target: int | None
    lines: Sequence[MonthLine]

    @property
    def width(self) -> int:
        return 100 * len(self.titles)

    @property
    def is_worth_drawing(self) -> bool:
        """Whether two successive months have a value: single dots show no course."""
        return any("L" in line.d for line in self.lines)

    @property
    def spoken(self) -> str:
        """The chart as a screen reader reads it."""
        return "; ".join(self.titles)


class MonthValues(Protocol):
    """The two figures of a month."""

    @property
    def availability(self) -> Fraction | None: ...

    @property
    def reliability(self) -> Fraction | None: ...


def line_chart(
    months: Sequence[date], figures: Sequence[MonthValues | None], target: Fraction
) -> LineChart:
    """The chart of two lines over months; a month without a value interrupts its line."""
    availability = [figure.availability if figure else None for figure in figures]
    reliability = [figure.reliability if figure else None for figure in figures]
    values = [value for value in (*availability, *reliability) if value is not None]
    # The lowest value is not on the edge, and a hundredth of a percent does not look like a fall.
    low = max(0, (int(min(values, default=Fraction(100))) - 2) // _STEP * _STEP)

    def height(value: Fraction) -> int:
        return _MARGIN + round((100 - value) / (100 - low) * (100 - 2 * _MARGIN))

    def line(kind: str, values: Sequence[Fraction | None]) -> MonthLine:
        path, dots, connected = "", "", False
        for column, value in enumerate(values):
            if value is not None:
                at = f"{100 * column + 50} {height(value)}"
                path += f"{'L' if connected else 'M'}{at}"
                dots += f"M{at}h0"
            connected = value is not None
        return MonthLine(kind, path, dots)

    titles = [
        f"{month:%B %Y}: availability {short(a)}, reliability {short(r)}"
        for month, a, r in zip(months, availability, reliability, strict=True)
    ]
    # Availability is drawn last, on top.
    lines = [line(RELIABILITY, reliability), line(AVAILABILITY, availability)]
    return LineChart(titles, low, height(target) if target > low else None, lines)
