"""PlotLine charts as SVG inside a page, without any library: axes with units, markers, dashes.

A line is known by its marker and its dashes as well as by its colour, so a black and white print
shows all that the screen shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import NamedTuple, Optional

Point = tuple[float, float]

WIDTH, HEIGHT = 460, 290
LEFT, RIGHT, TOP, BOTTOM = 64, 14, 30, 48
MARKER = 4.0
MAX_MARKERS = 12
"""A line with more points has a marker at every nth only."""


class Style(NamedTuple):
    colour: str
    dashes: str
    marker: str
    filled: bool


STYLES = (
    Style("#1b1b1b", "", "circle", True),
    Style("#0063a6", "7 3", "square", False),
    Style("#c2410c", "2 2.5", "triangle", True),
    Style("#00735c", "9 3 2 3", "diamond", False),
    Style("#8b3a86", "4 2", "cross", False),
    Style("#7a5c00", "12 4", "circle", False),
    Style("#5a5a5a", "1 3", "square", True),
)
"""Colours that people with any vision distinguish, all dark enough for a print."""


class Axis(NamedTuple):
    """What an axis shows, with its unit in the label; `ticks` are its marks, else they are even."""

    label: str
    low: float
    high: float
    is_log: bool = False
    ticks: Sequence[float] = ()

    def marks(self) -> Sequence[float]:
        if self.ticks:
            return self.ticks
        return log_ticks(self.low, self.high) if self.is_log else even_ticks(self.low, self.high)

    def share(self, value: float) -> float:
        """Where a value is, from 0 to 1."""
        if not self.is_log:
            return (value - self.low) / ((self.high - self.low) or 1)
        value = max(value, self.low)
        return math.log(value / self.low) / (math.log(self.high / self.low) or 1)


class PlotLine(NamedTuple):
    """A point without a value (None) interrupts the line."""

    name: str
    points: Sequence[tuple[float, Optional[float]]]
    style: int


class Band(NamedTuple):
    """A time that is marked behind the lines."""

    low: float
    high: float
    text: str


class Panel(NamedTuple):
    title: str
    x: Axis
    y: Axis
    lines: Sequence[PlotLine]
    band: Optional[Band] = None


def axis_for(label: str, values: Iterable[float], is_log: bool = False) -> Axis:
    """An axis with room for all values: from 0, or between the marks of a logarithmic one."""
    numbers = [value for value in values if value > 0] or [1.0]
    if is_log:
        powers = range(
            math.floor(math.log10(min(numbers))), math.ceil(math.log10(max(numbers))) + 2
        )
        marks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
        low = max(mark for mark in marks if mark <= min(numbers) * 1.0001)
        high = min(mark for mark in marks if mark >= max(numbers) * 0.9999 and mark > low)
        return Axis(label, low, high, True)
    ticks = even_ticks(0.0, max(numbers))
    step = ticks[1] - ticks[0]
    return Axis(label, 0.0, step * math.ceil(max(numbers) / step - 1e-9))


def even_ticks(low: float, high: float) -> list[float]:
    """At most seven round numbers."""
    rough = (high - low) / 5 or 1.0
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [step * n for n in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """The powers of ten, and 2 and 5 between them if there are few."""
    first, last = math.floor(math.log10(low * 0.999)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if high / low <= 1000 else (1,)
    found = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
    return [value for value in found if low * 0.999 <= value <= high * 1.001]


def number_text(value: float) -> str:
    """A number of an axis: 0.2, 50, 2 k, 1.5 M."""
    for limit, unit in ((1e6, " M"), (1e3, " k")):
        if abs(value) >= limit:
            return f"{value / limit:.6g}{unit}"
    return f"{value:.6g}"


def svg(panel: Panel) -> str:
    """The panel as an element of a page."""
    return "".join(_elements(panel))


def legend(names: Sequence[tuple[str, int]], title: str) -> str:
    """Names of lines, each with a piece of its line."""
    items = []
    for name, number in names:
        style = STYLES[number % len(STYLES)]
        piece = f'<path d="M1 7H33" {_stroke(style)}/>{_marker(style, 17, 7)}'
        drawn = f'<svg width="34" height="14" viewBox="0 0 34 14" aria-hidden="true">{piece}</svg>'
        items.append(f"<li>{drawn} {escape(name)}</li>")
    return f'<p class="legend">{escape(title)}</p><ul class="legend">{"".join(items)}</ul>'


def _elements(panel: Panel) -> Iterator[str]:
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    x_axis, y_axis = panel.x, panel.y

    def across(value: float) -> float:
        return LEFT + x_axis.share(value) * width

    def down(value: float) -> float:
        return TOP + (1 - y_axis.share(value)) * height

    described = f"{panel.title}: {y_axis.label} over {x_axis.label}"
    yield f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="'
    yield f'{escape(described)}">'
    if panel.band:
        left, right = across(panel.band.low), across(min(panel.band.high, x_axis.high))
        yield f'<rect class="band" x="{left:.1f}" y="{TOP}" width="{right - left:.1f}"'
        yield f' height="{height}"/>'
        yield _text(left + 3, TOP + 11, panel.band.text, "band", "start")
    for value in y_axis.marks():
        y = down(value)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield _text(LEFT - 6, y + 3.5, number_text(value), "mark", "end")
    for value in x_axis.marks():
        x = across(value)
        yield f'<path class="axis" d="M{x:.1f} {TOP + height}v4"/>'
        yield _text(x, TOP + height + 15, number_text(value), "mark")
    yield f'<path class="axis" d="M{LEFT} {TOP}V{TOP + height}H{WIDTH - RIGHT}"/>'
    yield _text(LEFT, TOP - 11, panel.title, "title", "start")
    yield _text(LEFT + width / 2, HEIGHT - 8, x_axis.label, "label")
    middle = TOP + height / 2
    yield f'<g transform="rotate(-90 13 {middle:.1f})">'
    yield _text(13, middle, y_axis.label, "label")
    yield "</g>"
    for line in panel.lines:
        style = STYLES[line.style % len(STYLES)]
        runs = [[(across(x), down(y)) for x, y in run] for run in _runs(line.points)]
        path = "".join(
            "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in run) for run in runs if len(run) > 1
        )
        points = [point for run in runs for point in run]
        yield f"<g><title>{escape(line.name)}</title>"
        if path:
            yield f'<path d="{path}" {_stroke(style)}/>'
        step = max(1, math.ceil(len(points) / MAX_MARKERS))
        # Lines on top of each other have their markers at different points.
        for x, y in points[(line.style * 2) % step :: step]:
            yield _marker(style, x, y)
        yield "</g>"
    yield "</svg>"


def _runs(points: Sequence[tuple[float, Optional[float]]]) -> Iterator[list[Point]]:
    """The points between those without a value."""
    run: list[Point] = []
    for x, y in points:
        if y is None:
            if run:
                yield run
            run = []
        else:
            run.append((x, y))
    if run:
        yield run


def _stroke(style: Style) -> str:
    dashes = f' stroke-dasharray="{style.dashes}"' if style.dashes else ""
    return f'fill="none" stroke="{style.colour}" stroke-width="1.6"{dashes}'


def _marker(style: Style, x: float, y: float) -> str:
    m = MARKER
    shapes = {
        "square": f"M{x - m:.1f} {y - m:.1f}h{2 * m}v{2 * m}h-{2 * m}z",
        "triangle": f"M{x:.1f} {y - m * 1.2:.1f}l{m * 1.2:.1f} {m * 2:.1f}h-{m * 2.4:.1f}z",
        "diamond": f"M{x:.1f} {y - m * 1.3:.1f}l{m * 1.3:.1f} {m * 1.3:.1f}l-{m * 1.3:.1f}"
        f" {m * 1.3:.1f}l-{m * 1.3:.1f} -{m * 1.3:.1f}z",
        "cross": f"M{x - m:.1f} {y - m:.1f}l{2 * m} {2 * m}m0 -{2 * m}l-{2 * m} {2 * m}",
        "circle": f"M{x - m:.1f} {y:.1f}a{m} {m} 0 1 0 {2 * m} 0a{m} {m} 0 1 0 -{2 * m} 0z",
    }
    fill = style.colour if style.filled else "#fff"
    painted = f'fill="{fill}" stroke="{style.colour}" stroke-width="1.3"'
    return f'<path d="{shapes[style.marker]}" {painted}/>'


def _text(x: float, y: float, text: str, kind: str, anchor: str = "middle") -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {where}>{escape(text)}</text>'
