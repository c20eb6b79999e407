"""Explains a site's figures on a day: its segments and their causes, down to results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from sam_pipeline.spark_jobs.explain.causes import Failure
from sam_pipeline.spark_jobs.explain.evidence import Evidence, evidence_of
from sam_pipeline.spark_jobs.explain.failures import failures
from sam_pipeline.spark_jobs.explain.results import CountedResults, Ignored, Results
from sam_pipeline.spark_jobs.explain.timelines import FINE, Timelines
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Downtime, Exclusion
from sam_pipeline.spark_jobs.rules.days import DAY_S
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, FUNCTION, GROUP, SERVICE, SITE
from sam_pipeline.spark_jobs.rules.seconds import Seconds, rounded
from sam_pipeline.spark_jobs.runs.published import Names, Run, Segment


@dataclass(frozen=True)
class Reason:
    """A segment that is not OK, and its causes.

    `deciding` are the segments of the children (a site's functions … an endpoint's metrics) that it
    follows from. `evidence` explains the metrics of an endpoint, the deciding ones first.
    """

    start: int
    end: int
    status: str
    deciding: Sequence[Segment]
    evidence: Sequence[Evidence]
    downtimes: Sequence[Downtime]
    exclusions: Sequence[Exclusion]


@dataclass(frozen=True)
class Thing:
    """A site, function, service or endpoint on a day; `operation` folds its children."""

    level: str
    names: Names
    seconds: Seconds
    segments: Sequence[Segment]
    operation: str
    reasons: Sequence[Reason]


@dataclass(frozen=True)
class SiteDay:
    """Everything about one site on one day.

    `downtimes` and `exclusions` are all those that apply to it, including those that changed
    nothing; `ignored` are its results from excluded monitoring hosts.
    """

    report: str
    site: str
    run: Run
    things: Sequence[Thing]
    downtimes: Sequence[Downtime]
    exclusions: Sequence[Exclusion]
    ignored: Sequence[Ignored]
    failures: Sequence[Failure]

    def of_level(self, level: str) -> list[Thing]:
        return [thing for thing in self.things if thing.level == level]

    @cached_property
    def thing_of(self) -> Mapping[tuple[str, Names], Thing]:
        """Things by level and names."""
        return {(thing.level, thing.names): thing for thing in self.things}


def explain_site(
    report: str, site: str, run: Run, segments: Iterable[Segment], results: Results
) -> SiteDay:
    """The site's day, from its segments of all levels and the results that the run read."""
    timelines = Timelines(segments, run.profile)
    counted = CountedResults(run, results)
    endpoints = [names for _, names in timelines.of_level(ENDPOINT)]
    downtimes = downtimes_of(run, endpoints)
    exclusions = exclusions_of(run, site, endpoints)
    things = [
        _thing(level, names, timelines, counted, downtimes, exclusions)
        for wanted in (SITE, FUNCTION, SERVICE, ENDPOINT)
        for level, names in timelines.of_level(wanted)
    ]
    here = {names[1:] for names in endpoints}
    ignored = [
        result
        for instance in sorted(results)
        if instance[:2] in here
        for result in counted.ignored(instance, run.start - DAY_S, run.end)
    ]
    failed = failures(timelines, counted)
    return SiteDay(report, site, run, things, downtimes, exclusions, ignored, failed)


def downtimes_of(run: Run, endpoints: Sequence[Names]) -> list[Downtime]:
    """The downtimes that overlap the run's day and apply to one of the endpoints."""
    return [
        d
        for d in run.downtimes
        if d.touches(run.start, run.end) and any(d.covers(*names) for names in endpoints)
    ]


def exclusions_of(run: Run, site: str, endpoints: Sequence[Names]) -> list[Exclusion]:
    """The exclusions of the run that apply to a site, or to one of its endpoints."""
    return [
        exclusion
        for exclusion in run.exclusions
        if exclusion.kind == MONITORING_HOST
        or (exclusion.kind == GROUP and exclusion.site == site)
        or any(
            exclusion.covers(*names) and exclusion.metric_name in run.profile.metrics_of(names[1])
            for names in endpoints
        )
    ]


def arithmetic(seconds: Seconds) -> list[str]:
    """How the percentages follow from the seconds, as formulas with their numbers."""

    def shown(value: Fraction | None) -> str:
        return "undefined: no time is known" if value is None else str(rounded(value))

    up = f"OK {seconds.ok} + WARNING {seconds.warning}"
    not_known = f"not known {seconds.not_known}"
    without_downtime = f"{seconds.total} - {not_known} - downtime {seconds.downtime}"
    return [
        (
            f"availability = 100 x ({up}) / ({seconds.total} - {not_known})"
            f" = {shown(seconds.availability)}"
        ),
        f"reliability = 100 x ({up}) / ({without_downtime}) = {shown(seconds.reliability)}",
        (
            f"not known = UNKNOWN {seconds.unknown} + MISSING {seconds.missing}"
            f" + EXCLUDED {seconds.excluded}; CRITICAL {seconds.critical}; all in seconds"
        ),
    ]


def seconds_of(segments: Iterable[Segment]) -> Seconds:
    """The seconds of each status."""
    seconds: dict[str, int] = {}
    for segment in segments:
        name = segment.status.lower()
        seconds[name] = seconds.get(name, 0) + segment.end - segment.start
    return Seconds(**seconds)


def _thing(
    level: str,
    names: Names,
    timelines: Timelines,
    results: CountedResults,
    downtimes: Sequence[Downtime],
    exclusions: Sequence[Exclusion],
) -> Thing:
    profile, segments = results.run.profile, timelines.of[level, names]
    if level == ENDPOINT:
        operation = profile.metrics_operation
    elif level == SERVICE:
        [operation] = [f.endpoints_operation for f in profile.flavours if f.name == names[1]]
    elif level == FUNCTION:
        [operation] = [f.flavours_operation for f in profile.functions if f.name == names[1]]
    else:
        operation = profile.functions_operation
    reasons = []
    for segment in segments:
        start, end, status = segment.start, segment.end, segment.status
        if status == FINE:
            continue
        in_downtime = [
            downtime
            for downtime in downtimes
            if (level, status) == (ENDPOINT, "DOWNTIME")
            and results.run.counts(downtime)
            and downtime.covers(*names)
            and downtime.touches(start, end)
        ]
        excluded = [
            exclusion
            for exclusion in exclusions
            if (level, status, exclusion.kind) == (SITE, "UNKNOWN", GROUP)
            and exclusion.touches(start, end)
        ]
        # Where a downtime or an exclusion overrides the fold, no child decides.
        covered = [(span.start, span.end) for span in (*in_downtime, *excluded)]
        deciding = timelines.deciding(segment, covered)
        evidence = []
        if level == ENDPOINT:
            children = timelines.children(segment)
            metrics = [*deciding, *(child for child in children if child not in deciding)]
            evidence = [
                evidence_of(metric, results, decides=metric in deciding)
                for metric in metrics
                if metric.status != FINE
            ]
        reasons.append(Reason(start, end, status, deciding, evidence, in_downtime, excluded))
    return Thing(level, names, seconds_of(segments), segments, operation, reasons)
