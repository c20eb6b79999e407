"""A site's day as a tree of timelines: which children decided a segment, and which cost the site.

A site is folded from its functions, functions from services, services from endpoints, and endpoints
from metrics. AND and OR return the status of one of the children, so the children with the status
of their parent decide it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from sam_pipeline.spark_jobs.inputs.announced import Exclusion
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, FUNCTION, METRIC, SERVICE, SITE
from sam_pipeline.spark_jobs.runs.published import Names, Segment

FINE = "OK"

Key = tuple[str, Names]
"""level and names"""
Span = tuple[int, int]

# The statuses that lower availability or leave it unknown, without a downtime or an exclusion.
_NOT_UP = ("CRITICAL", "UNKNOWN", "MISSING")
_start, _end = attrgetter("start"), attrgetter("end")


class Timelines:
    """The segments of a site's day, by level and names, and by time."""

    def __init__(self, segments: Iterable[Segment], profile: Profile) -> None:
        self.of: dict[Key, list[Segment]] = {}
        for segment in segments:
            self.of.setdefault((segment.level, segment.names), []).append(segment)
        self._children: dict[Key, list[Key]] = {}
        for level, names in sorted(self.of):
            # The things that it is folded into (availability rules 8 and 9).
            parents: list[Key] = []
            if level == METRIC:
                parents = [(ENDPOINT, names[:3])]
            elif level == ENDPOINT:
                parents = [(SERVICE, names[:2])]
            elif level == SERVICE:
                parents = [(FUNCTION, (names[0], name)) for name in profile.functions_of(names[1])]
            elif level == FUNCTION:
                parents = [(SITE, names[:1])]
            for parent in parents:
                self._children.setdefault(parent, []).append((level, names))

    def of_level(self, level: str) -> list[Key]:
        return [key for key in sorted(self.of) if key[0] == level]

    def children(self, segment: Segment) -> list[Segment]:
        """The children's segments that overlap a segment."""
        touching = []
        for key in self._children.get((segment.level, segment.names), ()):
            segments = self.of[key]
            first = bisect_right(segments, segment.start, key=_end)
            touching += segments[first : bisect_left(segments, segment.end, lo=first, key=_start)]
        return touching

    def deciding(self, segment: Segment, covered: Sequence[Span] = ()) -> list[Segment]:
        """The children's segments that decided a segment, outside the `covered` times.

        At each time these are the children with the parent's status. An operation of the profile's
        own may return a status that no child has: then all children that are not OK, or all.
        """
        children = self.children(segment)
        same = [
            child
            for child in children
            if child.status == segment.status
            and uncovered(max(child.start, segment.start), min(child.end, segment.end), covered)
        ]
        spans = [*covered, *((child.start, child.end) for child in same)]
        left = uncovered(segment.start, segment.end, spans)
        others = [
            child
            for child in (children if left else ())
            if child not in same
            and any(child.start < end and child.end > start for start, end in left)
        ]
        deciding = [*same, *([child for child in others if child.status != FINE] or others)]
        return sorted(deciding, key=lambda child: (child.start, child.names))


def costly_spans(
    timelines: Timelines, exclusions: Iterable[Exclusion]
) -> Mapping[Names, Sequence[Span]]:
    """For each metric, the times when neither it nor anything it is folded into was up.

    So a failing endpoint costs its site nothing if another endpoint keeps the service up.
    """
    costly: dict[Key, list[Segment]] = {}
    excluded = [(e.start, e.end) for e in exclusions if e.kind == SITE]
    for key in timelines.of_level(SITE):
        costly[key] = [
            _clipped(segment, start, end)
            for segment in timelines.of[key]
            if segment.status in _NOT_UP
            for start, end in uncovered(segment.start, segment.end, excluded)
        ]
    for level in (SITE, FUNCTION, SERVICE, ENDPOINT):
        for parent in [segment for key in costly if key[0] == level for segment in costly[key]]:
            for child in timelines.children(parent):
                # An operation of the profile's own may fold two WARNINGs to CRITICAL.
                if child.status in _NOT_UP or (
                    child.status == "WARNING" and child in timelines.deciding(parent)
                ):
                    costly.setdefault((child.level, child.names), []).append(
                        _clipped(child, parent.start, parent.end)
                    )
    return {
        names: _united((segment.start, segment.end) for segment in segments)
        for (level, names), segments in costly.items()
        if level == METRIC
    }


def uncovered(start: int, end: int, spans: Iterable[Span]) -> list[Span]:
    """The parts of [start, end) outside all spans."""
    left = []
    for first, last in sorted(spans):
        if first > start:
            left.append((start, min(first, end)))
        start = max(start, last)
        if start >= end:
            return left
    return [*left, (start, end)]


def _united(spans: Iterable[Span]) -> list[Span]:
    united: list[Span] = []
    for start, end in sorted(spans):
        if united and start <= united[-1][1]:
            united[-1] = (united[-1][0], max(united[-1][1], end))
        else:
            united.append((start, end))
    return united


def _clipped(segment: Segment, start: int, end: int) -> Segment:
    times = max(segment.start, start), min(segment.end, end)
    return Segment(segment.day, segment.level, segment.names, *times, segment.status)
