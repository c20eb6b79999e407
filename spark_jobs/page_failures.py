"""What was not OK: the results behind the stretches of the metrics, folded by cause."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

from spark_jobs.database_inputs import Result
from spark_jobs.days import DAY_S
from spark_jobs.grouping import Failure
from spark_jobs.levels import METRIC
from spark_jobs.stored import Segment

Instance = tuple[str, str, str]
Results = Mapping[Instance, Sequence[Result]]

NO_RESULT = "no result came"
NOT_STORED = "(its result is no longer stored)"
# Neither needs a result to explain it: nobody asked, or someone has told the reason.
_NO_FAILURE = ("OK", "EXCLUDED")


def failing_instances(segments: Iterable[Segment]) -> set[Instance]:
    """The metrics of endpoints that have a failure among the segments."""
    return {_instance(each) for each in segments if _is_failure(each)}


def by_instance(results: Iterable[Result]) -> dict[Instance, list[Result]]:
    """Results, oldest first, by what they measured."""
    found: dict[Instance, list[Result]] = {}
    for each in results:
        key = (each.service_flavour, each.host_name, each.metric_name)
        found.setdefault(key, []).append(each)
    return found


def failures(segments: Iterable[Segment], results: Results) -> Iterator[Failure]:
    """A failure for each result in the stretches of the metrics that are not OK.

    A stretch that begins with the day may come from a result of the day before; one without a
    result is a failure, too.
    """
    for segment in filter(_is_failure, segments):
        instance = _instance(segment)
        found = _inside(results.get(instance, ()), segment)
        for each in found:
            yield Failure(*instance, segment.status, each.measured, each.summary, each.message_id)
        if not found:
            text = NO_RESULT if segment.status == "MISSING" else NOT_STORED
            yield Failure(*instance, segment.status, segment.start, text, "")


def _inside(results: Sequence[Result], segment: Segment) -> Sequence[Result]:
    if segment.status == "MISSING":
        return []
    first = bisect_left(results, segment.start, key=_measured)
    last = bisect_left(results, segment.end, key=_measured)
    begins_with_day = segment.start % DAY_S == 0
    if begins_with_day and not (first < last and results[first].measured == segment.start):
        oldest = bisect_right(results, segment.start - DAY_S - 1, key=_measured)
        first = max(first - 1, oldest)
    return results[first:last]


def _measured(result: Result) -> int:
    return result.measured


def _instance(segment: Segment) -> Instance:
    _, flavour, host, metric = segment.names
    return flavour, host, metric


def _is_failure(segment: Segment) -> bool:
    return segment.level == METRIC and segment.status not in _NO_FAILURE
