"""Why a metric of an endpoint had its status: the results behind it, or why there are none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sam_pipeline.spark_jobs.explain.results import CountedResults, Ignored, Result, instance_of
from sam_pipeline.spark_jobs.inputs.announced import Exclusion
from sam_pipeline.spark_jobs.rules.days import DAY_S
from sam_pipeline.spark_jobs.rules.levels import METRIC
from sam_pipeline.spark_jobs.runs.published import Segment


@dataclass(frozen=True)
class Evidence:
    """A metric's part in a segment of its endpoint.

    `decides`: the endpoint's status follows from it; otherwise it was merely not OK at the time.
    `results` are those with the status, oldest first. A MISSING metric has none, but there may be a
    `last` one before, which was valid for `validity_s` seconds. `ignored` are results of excluded
    monitoring hosts that would have counted; `exclusions` are those of the metric itself.
    """

    metric_name: str
    start: int
    end: int
    status: str
    results: Sequence[Result]
    decides: bool = True
    last: Result | None = None
    validity_s: int | None = None
    ignored: Sequence[Ignored] = ()
    exclusions: Sequence[Exclusion] = ()


def evidence_of(segment: Segment, results: CountedResults, *, decides: bool) -> Evidence:
    """The evidence for a segment of a metric."""
    site, flavour, host, metric = segment.names
    about = (metric, segment.start, segment.end, segment.status)
    if segment.status == "EXCLUDED":
        exclusions = [
            exclusion
            for exclusion in results.run.exclusions
            if exclusion.kind == METRIC
            and exclusion.metric_name == metric
            and exclusion.covers(site, flavour, host)
            and exclusion.touches(segment.start, segment.end)
        ]
        return Evidence(*about, (), decides, exclusions=exclusions)
    if segment.status != "MISSING":
        return Evidence(*about, results.behind(segment), decides)
    instance, validity_s = instance_of(segment), results.run.profile.validity(metric)
    last = None if validity_s is None else results.last_before(instance, segment.start)
    oldest = last.measured if last else segment.start - segment.start % DAY_S - DAY_S
    ignored = results.ignored(instance, oldest, segment.end)
    validity_s = validity_s if last else None
    return Evidence(*about, (), decides, last=last, validity_s=validity_s, ignored=ignored)
