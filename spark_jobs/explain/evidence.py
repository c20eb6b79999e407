"""Why a metric of an endpoint had the status it had: its results, or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sam_pipeline.spark_jobs.explain.results import Ignored, InstanceResults
from sam_pipeline.spark_jobs.inputs.announced import Exclusion, Result
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S
from sam_pipeline.spark_jobs.rules.levels import METRIC
from sam_pipeline.spark_jobs.runs.published import Segment


@dataclass(frozen=True)
class Evidence:
    """A metric's part in a segment of its endpoint.

    `decides`: the endpoint's status follows from it; else it only was not OK at the time.
    `results` are those that say so, oldest first. A MISSING metric has none, but maybe the `last`
    one before, which was believed for `validity_s` seconds (None: there was none to believe).
    `ignored` are results of excluded monitoring hosts that would have said something,
    `exclusions` those of the metric itself.
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


def evidence_of(
    segment: Segment,
    known: InstanceResults,
    exclusions: Sequence[Exclusion],
    profile: Profile,
    decides: bool,
) -> Evidence:
    """What is behind a segment of a metric."""
    site, flavour, host, metric = segment.names
    about = (metric, segment.start, segment.end, segment.status)
    if segment.status == "EXCLUDED":
        own = [
            each
            for each in exclusions
            if each.kind == METRIC
            and each.metric_name == metric
            and each.covers(site, flavour, host)
            and each.start < segment.end
            and each.end > segment.start
        ]
        return Evidence(*about, (), decides, exclusions=own)
    if segment.status == "MISSING":
        return _missing(about, segment, known, profile.validity(metric), decides)
    return Evidence(*about, _saying(segment, known.counted), decides)


def _missing(
    about: tuple[str, int, int, str],
    segment: Segment,
    known: InstanceResults,
    validity_s: int | None,
    decides: bool,
) -> Evidence:
    before = [each for each in known.counted if each.measured < segment.start]
    last = before[-1] if before and validity_s is not None else None
    oldest = last.measured if last else segment.start - segment.start % DAY_S - DAY_S
    ignored = [each for each in known.ignored if oldest <= each.result.measured < segment.end]
    return Evidence(
        *about, (), decides, last=last, validity_s=validity_s if last else None, ignored=ignored
    )


def _saying(segment: Segment, counted: Sequence[Result]) -> list[Result]:
    """The results of the segment's status: the one it began with, and those within."""
    same = [r for r in counted if r.status == segment.status and r.measured < segment.end]
    inside = [result for result in same if result.measured >= segment.start]
    if inside and inside[0].measured == segment.start:
        return inside
    # A state that goes on: from the day before, or from under an exclusion.
    before = [result for result in same if result.measured < segment.start]
    return [*before[-1:], *inside]
