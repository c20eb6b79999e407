"""Timelines as SVG: for each status one path of horizontal strokes, in minutes of the day.

A lane is 1440 units wide and 20 high, and scales to any width. On top of it lie invisible spots
as high as the lane, with the times and the reason of a stretch as their title. The style sheet sets
the width and dashes of strokes in pixels (`vector-effect: non-scaling-stroke`), so scaling does not
distort them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from sam_pipeline.schema.program.wording import one_line, printable
from sam_pipeline.spark_jobs.explain.because import Stretch
from sam_pipeline.spark_jobs.explain.phrases import span_text
from sam_pipeline.spark_jobs.rules.days import DAY_S
from sam_pipeline.spark_jobs.rules.statuses import STATUSES
from sam_pipeline.spark_jobs.runs.published import Segment

HOURS = range(0, 25, 3)
# The number of segments of a timeline that a screen reader reads.
_MAX_SPOKEN = 4
_MAX_TITLE = 160
# The minimum drawn length of a segment that is not OK: a minute would be invisible.
_MIN_DRAWN_S = 240


@dataclass(frozen=True)
class Stroke:
    """A path: `kind` is its class in the style sheet, `d` its data."""

    kind: str
    d: str


@dataclass(frozen=True)
class Spot:
    """An invisible path to point at."""

    d: str
    title: str


# Short class names, as a page has many lanes.
KINDS = {status: status[:2].lower() for status in STATUSES}
LEGEND = [(Stroke(KINDS[status], "M0 0h1440"), status) for status in STATUSES]
COUNTS, ANNOUNCED, EXCLUDED = "sc", "sa", "se"
SHADES = [
    (Stroke(COUNTS, "M0 0h1440"), "announced downtime that counts"),
    (Stroke(ANNOUNCED, "M0 0h1440"), "announced downtime that does not count"),
    (Stroke(EXCLUDED, "M0 0h1440"), "exclusion"),
]


def status_strokes(timeline: Iterable[Segment | Stretch]) -> list[Stroke]:
    """A path for each status that occurs; the worst are drawn last, on top."""
    lines: dict[str, list[str]] = {}
    for stretch in timeline:
        min_s = 0 if stretch.status == STATUSES[0] else _MIN_DRAWN_S
        lines.setdefault(stretch.status, []).append(_line(stretch.start, stretch.end, min_s))
    return [Stroke(KINDS[status], "".join(lines[status])) for status in STATUSES if status in lines]


def spots(timeline: Iterable[Stretch]) -> list[Spot]:
    """A spot for each stretch; short ones lie on top, so that one can point at them."""
    longest_first = sorted(timeline, key=lambda stretch: stretch.start - stretch.end)
    return [spot(stretch.start, stretch.end, str(stretch)) for stretch in longest_first]


def spot(start: int, end: int, title: str) -> Spot:
    return Spot(_line(start, end, _MIN_DRAWN_S), one_line(title, _MAX_TITLE))


def svg(label: str, strokes: Iterable[Stroke], spots: Sequence[Spot]) -> str:
    """A lane as markup; a page has too many of them for a template."""
    paths = "".join(f'<path class="{stroke.kind}" d="{stroke.d}"/>' for stroke in strokes)
    titled = "".join(
        f'<path d="{spot.d}"><title>{escape(spot.title)}</title></path>' for spot in spots
    )
    points = f"<g>{titled}</g>" if spots else ""
    return (
        '<svg class="l" viewBox="0 -10 1440 20" preserveAspectRatio="none" role="img"'
        f' aria-label="{escape(printable(label))}">{paths}{points}</svg>'
    )


def shade(kind: str, spans: Iterable[tuple[int, int]], start: int, end: int) -> list[Stroke]:
    """One path to draw behind the statuses, for spans clipped to [start, end); none if empty."""
    clipped = [(max(first, start), min(last, end)) for first, last in spans]
    d = "".join(_line(first, last, _MIN_DRAWN_S) for first, last in clipped if first < last)
    return [Stroke(kind, d)] if d else []


def spoken(timeline: Sequence[Segment | Stretch]) -> str:
    """The timeline as a screen reader reads it; the list below the lanes has the reasons."""
    if len(timeline) == 1 and timeline[0].end - timeline[0].start == DAY_S:
        return f"{timeline[0].status} all day"
    parts = [f"{s.status} {span_text(s.start, s.end)}" for s in timeline[:_MAX_SPOKEN]]
    left_out = len(timeline) - _MAX_SPOKEN
    if left_out > 0:
        parts.append(f"and {left_out} more")
    return ", ".join(parts)


def _line(start: int, end: int, min_s: int) -> str:
    # A page has many lines, and no screen more pixels than minutes for one.
    first = min(start % DAY_S, DAY_S - min_s)
    left, right = (round(second / 60) for second in (first, first + max(end - start, min_s)))
    return f"M{left} 0h{right - left}"
