"""What was not OK: the results behind the stretches of the metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sam_pipeline.spark_jobs.explain.causes import Failure
from sam_pipeline.spark_jobs.explain.explanation import NO_RESULT
from sam_pipeline.spark_jobs.explain.results import Instance
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST
from sam_pipeline.spark_jobs.rules.days import DAY_S
from sam_pipeline.spark_jobs.rules.levels import METRIC
from sam_pipeline.spark_jobs.runs.published import Run, Segment

NOT_STORED = "(its result is no longer stored)"
# Neither needs a result to explain it: nobody asked, or someone has told the reason.
_NO_FAILURE = ("OK", "EXCLUDED")


class Said(NamedTuple):
    """What a page tells of a result."""

    measured: int
    result_id: int
    summary: str
    message_id: str
    monitoring_host: str


Results = Mapping[Instance, Sequence[Said]]
"""Oldest first."""


def failing_instances(segments: Iterable[Segment]) -> set[Instance]:
    """The metrics of endpoints that have a failure among the segments."""
    return {_instance(each) for each in segments if _is_failure(each)}


def failures(run: Run, segments: Iterable[Segment], results: Results) -> Iterator[Failure]:
    """A failure for each result in the stretches of the metrics that are not OK.

    Only for results the run has read. A stretch that begins with the day may come from a result of
    the day before; one without a result is a failure, too.
    """
    for segment in filter(_is_failure, segments):
        instance = _instance(segment)
        found = _behind(run, segment, results.get(instance, ()))
        for each in found:
            yield Failure(*instance, segment.status, each.measured, each.summary, each.message_id)
        if not found:
            text = NO_RESULT if segment.status == "MISSING" else NOT_STORED
            yield Failure(*instance, segment.status, segment.start, text, "")


def _behind(run: Run, segment: Segment, results: Sequence[Said]) -> list[Said]:
    if segment.status == "MISSING":
        return []
    oldest = segment.start - DAY_S if segment.start % DAY_S == 0 else segment.start
    first, start, end = (
        bisect_left(results, (moment,)) for moment in (oldest, segment.start, segment.end)
    )
    inside = [each for each in results[start:end] if _counts(run, each)]
    if inside and inside[0].measured == segment.start:
        return inside
    before = [each for each in results[first:start] if _counts(run, each)]
    return [*before[-1:], *inside]


def _counts(run: Run, said: Said) -> bool:
    """Whether the run has read the result, and its monitoring host wasn't excluded (rule 7)."""
    return said.result_id <= run.newest_result and not any(
        each.kind == MONITORING_HOST
        and each.monitoring_host == said.monitoring_host
        and each.start <= said.measured <= each.end
        for each in run.exclusions
    )


def _instance(segment: Segment) -> Instance:
    _, flavour, host, metric = segment.names
    return flavour, host, metric


def _is_failure(segment: Segment) -> bool:
    return segment.level == METRIC and segment.status not in _NO_FAILURE
