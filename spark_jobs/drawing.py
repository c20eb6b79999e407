"""Timelines as bars for SVG: places in percent of the day, so that they fit any width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_jobs.database_inputs import Downtime
from spark_jobs.days import DAY_S, moment
from spark_jobs.stored import Segment

HOURS = range(0, 25, 3)
# A screen reader is told so many stretches of a timeline.
_MAX_TOLD = 6


@dataclass(frozen=True)
class Bar:
    """A stretch of a timeline. `kind` is the status in lower case, or "announced"."""

    left: str
    width: str
    kind: str
    title: str


def status_bars(segments: Iterable[Segment]) -> list[Bar]:
    """A bar for each segment."""
    return [
        _bar(
            each.start, each.end, each.status.lower(), f"{each.status} {span(each.start, each.end)}"
        )
        for each in segments
    ]


def announced_bars(downtimes: Iterable[Downtime], start: int, end: int) -> list[Bar]:
    """A bar for each downtime that doesn't count: it is drawn, and changes nothing."""
    return [
        _bar(
            max(each.start, start),
            min(each.end, end),
            "announced",
            f"{each.classification}/{each.severity} announced, does not count"
            + (f": {each.description}" if each.description else ""),
        )
        for each in downtimes
        if each.start < end and each.end > start
    ]


def told(name: str, segments: Sequence[Segment]) -> str:
    """The timeline in words."""
    stretches = [f"{each.status} {span(each.start, each.end)}" for each in segments[:_MAX_TOLD]]
    left_out = len(segments) - _MAX_TOLD
    more = [f"and {left_out} more stretches"] if left_out > 0 else []
    return f"{name}: {', '.join([*stretches, *more])}"


def span(start: int, end: int) -> str:
    """`09:12:03-10:01:00`; the day's end is 24:00:00."""
    return (
        f"{moment(start):%H:%M:%S}-{'24:00:00' if end % DAY_S == 0 else f'{moment(end):%H:%M:%S}'}"
    )


def _bar(start: int, end: int, kind: str, title: str) -> Bar:
    left = start % DAY_S
    return Bar(_percent(left), _percent(end - start), kind, title)


def _percent(seconds: int) -> str:
    return f"{100 * seconds / DAY_S:.3f}".rstrip("0").rstrip(".") + "%"
