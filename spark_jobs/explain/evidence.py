"""Why a metric of an endpoint had its status: the results behind it, or why there are none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sam_pipeline.spark_jobs.explain.results import CountedResults, Ignored, Result, instance_of
from sam_pipeline.spark_jobs.inputs.announced import Exclusion
from sam_pipeline.spark_jobs.rules.levels import METRIC
from sam_pipeline.spark_jobs.runs.published import Segment


@dataclass(frozen=True)
class Evidence:
    """Why a metric had its status during a segment of its endpoint.

    `decides` is whether the endpoint's status follows from it. `results` are those with the status,
    oldest first, and `why_none` is why there are none. A MISSING metric has none, but may have a
    `last` earlier result, which was valid for `validity_s` seconds. `since` is the second from
    which results count. `ignored` are results that would have counted if their monitoring hosts
    were not excluded. `exclusions` are those that made the metric EXCLUDED.
    """

    metric_name: str
    start: int
    end: int
    status: str
    results: Sequence[Result]
    decides: bool = True
    last: Result | None = None
    validity_s: int | None = None
    since: int = 0
    ignored: Sequence[Ignored] = ()
    exclusions: Sequence[Exclusion] = ()
    why_none: str = ""


def evidence_of(segment: Segment, results: CountedResults) -> Evidence:
    """The evidence for the status of a metric's segment."""
    site, flavour, host, metric = segment.names
    of_segment = (metric, segment.start, segment.end, segment.status)
    if segment.status == "EXCLUDED":
        exclusions = [
            exclusion
            for exclusion in results.run.exclusions
            if exclusion.kind == METRIC
            and exclusion.metric_name == metric
            and exclusion.covers(site, flavour, host)
            and exclusion.touches(segment.start, segment.end)
        ]
        return Evidence(*of_segment, (), exclusions=exclusions)
    if segment.status != "MISSING":
        return Evidence(*of_segment, results.behind(segment), why_none=results.why_none)
    instance, validity_s = instance_of(segment), results.run.profile.validity(metric)
    last = None if validity_s is None else results.last_before(instance, segment.start)
    since = last.measured if last else results.first_second(instance)
    ignored = results.ignored(instance, since, segment.end)
    validity_s = validity_s if last else None
    return Evidence(*of_segment, (), last=last, validity_s=validity_s, since=since, ignored=ignored)
