"""The failures of a site's day: which metrics were not OK, and whether it cost availability.

The pages and `sam-report explain` show the same failures in the same two classes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from sam_pipeline.spark_jobs.explain.causes import Failure
from sam_pipeline.spark_jobs.explain.phrases import threshold_text
from sam_pipeline.spark_jobs.explain.results import (
    NO_RESULT,
    CountedResults,
    Instance,
    JudgedResult,
    Result,
    instance_of,
)
from sam_pipeline.spark_jobs.explain.timelines import FINE, Span, Timelines, costly_spans
from sam_pipeline.spark_jobs.rules.levels import METRIC
from sam_pipeline.spark_jobs.runs.published import Segment


def failing_instances(timelines: Timelines) -> set[Instance]:
    """The metrics of endpoints that were not OK at some time."""
    return {instance_of(segment) for segment in _not_ok(timelines)}


def failures(timelines: Timelines, results: CountedResults) -> list[Failure]:
    """One failure for each result that made a metric not OK, and for each time without results.

    Results measured while the metric was excluded are failures without effect; results of an
    excluded monitoring host do not exist.
    """
    costly = costly_spans(timelines, results.run.exclusions)
    failed = []
    for segment in _not_ok(timelines):
        instance = instance_of(segment)
        if segment.status == "EXCLUDED":
            for result in results.between(instance, segment.start, segment.end):
                if result.status != FINE:
                    failed.append(_failure(instance, result, segment.end, costs=False))
            continue
        spans = costly.get(segment.names, ())
        behind = [] if segment.status == "MISSING" else results.behind(segment)
        for at, result in enumerate(behind):
            later = (r.measured for r in behind[at + 1 :] if r.measured > result.measured)
            start, end = max(result.measured, segment.start), next(later, segment.end)
            failed.append(_failure(instance, result, end, costs=_touches(spans, start, end)))
        if not behind:
            text = NO_RESULT if segment.status == "MISSING" else results.why_none
            costs = _touches(spans, segment.start, segment.end)
            status, start, end = segment.status, segment.start, segment.end
            failure = Failure(
                *instance, status, start, text, "", costs=costs, until=end, measured=False
            )
            failed.append(failure)
    return failed


def _touches(spans: Sequence[Span], start: int, end: int) -> bool:
    """Whether [start, end) overlaps one of the spans, which are sorted and disjoint."""
    first = bisect_right(spans, start, key=lambda span: span[1])
    return first < len(spans) and spans[first][0] < end


def _not_ok(timelines: Timelines) -> Iterator[Segment]:
    for key in timelines.of_level(METRIC):
        yield from (segment for segment in timelines.of[key] if segment.status != FINE)


def _failure(instance: Instance, result: Result, until: int, *, costs: bool) -> Failure:
    text, threshold = result.summary, ""
    if isinstance(result, JudgedResult):
        text = f"threshold on {result.value.label}: {text}"
        threshold = threshold_text(result)
    return Failure(
        *instance,
        result.status,
        result.measured,
        text,
        result.message_id,
        result.publisher,
        costs,
        threshold,
        until,
    )
