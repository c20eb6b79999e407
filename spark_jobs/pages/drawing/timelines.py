"""Timelines as SVG: for each status one path of horizontal strokes, in seconds of the day.

A lane is 86 400 units wide and 20 high, and scales to any width. The style sheet sets the width and
dashes of strokes in pixels (`vector-effect: non-scaling-stroke`), so scaling does not distort them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sam_pipeline.spark_jobs.explain.phrases import span_text
from sam_pipeline.spark_jobs.rules.days import DAY_S
from sam_pipeline.spark_jobs.rules.statuses import STATUSES
from sam_pipeline.spark_jobs.runs.published import Segment

HOURS = range(0, 25, 3)
# The number of segments of a timeline that a screen reader reads.
_MAX_SPOKEN = 6
# The minimum drawn length of a segment that is not OK: a minute would be invisible.
_MIN_DRAWN_S = 240


@dataclass(frozen=True)
class Stroke:
    """A path: `kind` is its class in the style sheet, `d` its data."""

    kind: str
    d: str


# Short class names, as a page has many lanes.
KINDS = {status: status[:2].lower() for status in STATUSES}
LEGEND = [(Stroke(KINDS[status], "M0 10h86400"), status) for status in STATUSES]
COUNTS, ANNOUNCED, EXCLUDED = "sc", "sa", "se"
SHADES = [
    (Stroke(COUNTS, "M0 10h86400"), "announced downtime that counts"),
    (Stroke(ANNOUNCED, "M0 10h86400"), "announced downtime that does not count"),
    (Stroke(EXCLUDED, "M0 10h86400"), "exclusion"),
]


def status_strokes(segments: Iterable[Segment]) -> list[Stroke]:
    """A path for each status that occurs; the worst are drawn last, on top."""
    lines: dict[str, list[str]] = {}
    for segment in segments:
        min_s = 0 if segment.status == STATUSES[0] else _MIN_DRAWN_S
        lines.setdefault(segment.status, []).append(_line(segment.start, segment.end, min_s))
    return [Stroke(KINDS[status], "".join(lines[status])) for status in STATUSES if status in lines]


def shade(kind: str, spans: Iterable[tuple[int, int]], start: int, end: int) -> list[Stroke]:
    """One path to draw behind the statuses, for spans clipped to [start, end); none if empty."""
    clipped = [(max(first, start), min(last, end)) for first, last in spans]
    d = "".join(_line(first, last, _MIN_DRAWN_S) for first, last in clipped if first < last)
    return [Stroke(kind, d)] if d else []


def spoken(segments: Sequence[Segment]) -> str:
    """The timeline as a screen reader reads it."""
    if len(segments) == 1 and segments[0].end - segments[0].start == DAY_S:
        return f"{segments[0].status} all day"
    parts = [f"{s.status} {span_text(s.start, s.end)}" for s in segments[:_MAX_SPOKEN]]
    left_out = len(segments) - _MAX_SPOKEN
    if left_out > 0:
        parts.append(f"and {left_out} more")
    return ", ".join(parts)


def _line(start: int, end: int, min_s: int) -> str:
    left = min(start % DAY_S, DAY_S - min_s)
    return f"M{left} 10h{max(end - start, min_s)}"
