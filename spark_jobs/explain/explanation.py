"""Explains a site's figures on a day: its segments and their causes, down to results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from fractions import Fraction
from functools import cached_property

from sam_pipeline.spark_jobs.explain.causes import Failure
from sam_pipeline.spark_jobs.explain.evidence import Evidence, evidence_of
from sam_pipeline.spark_jobs.explain.failures import failures
from sam_pipeline.spark_jobs.explain.results import CountedResults, Ignored, ReadResults
from sam_pipeline.spark_jobs.explain.timelines import FINE, Timelines
from sam_pipeline.spark_jobs.inputs.announced import Downtime, Exclusion
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, FUNCTION, GROUP, METRIC, SERVICE, SITE
from sam_pipeline.spark_jobs.rules.seconds import Seconds, rounded
from sam_pipeline.spark_jobs.runs.published import Names, PublishedRun, Segment


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

    `metrics` explains the times when metrics were not OK. `downtimes` and `exclusions` are all
    those that apply to the site, including those that changed nothing; an excluded monitoring host
    applies to the sites that it measured. `ignored` are the results from such hosts. `announcers`
    are the publishers of downtimes. `from_archive` are the versions of days whose results were read
    from the archive, as the database no longer has them.
    """

    report: str
    site: str
    run: PublishedRun
    things: Sequence[Thing]
    metrics: Mapping[Names, Sequence[Evidence]]
    downtimes: Sequence[Downtime]
    exclusions: Sequence[Exclusion]
    ignored: Sequence[Ignored]
    failures: Sequence[Failure]
    announcers: Mapping[Downtime, str]
    from_archive: Mapping[date, int] = field(default_factory=dict)

    def announcer(self, downtime: Downtime) -> str:
        """The publisher of a downtime; empty if it is no longer announced like that."""
        return self.announcers.get(downtime, "")

    def of_level(self, level: str) -> list[Thing]:
        return [thing for thing in self.things if thing.level == level]

    @cached_property
    def thing_of(self) -> Mapping[tuple[str, Names], Thing]:
        """Things by level and names."""
        return {(thing.level, thing.names): thing for thing in self.things}


def explain_site(
    report: str,
    site: str,
    run: PublishedRun,
    timelines: Timelines,
    results: ReadResults,
    announcers: Mapping[Downtime, str],
) -> SiteDay:
    """The site's day, from its timelines of all levels and the results that the run read."""
    counted = CountedResults(run, results)
    endpoints = [names for _, names in timelines.of_level(ENDPOINT)]
    here = {names[1:] for names in endpoints}
    ignored = [
        result
        for instance in sorted(results)
        if instance[:2] in here
        for result in counted.ignored(instance, counted.first_second(instance), run.end)
    ]
    downtimes = [
        downtime
        for downtime in run.downtimes
        if downtime.touches(run.start, run.end)
        and any(downtime.covers(*names) for names in endpoints)
    ]
    exclusions = _exclusions(run, site, endpoints, ignored)
    evidence_for = {
        segment: evidence_of(segment, counted)
        for key in timelines.of_level(METRIC)
        for segment in timelines.of[key]
        if segment.status != FINE
    }
    metrics: dict[Names, list[Evidence]] = {}
    for segment, evidence in evidence_for.items():
        metrics.setdefault(segment.names, []).append(evidence)
    things = [
        _thing(level, names, timelines, run, evidence_for, downtimes, exclusions)
        for wanted in (SITE, FUNCTION, SERVICE, ENDPOINT)
        for level, names in timelines.of_level(wanted)
    ]
    return SiteDay(
        report,
        site,
        run,
        things,
        metrics,
        downtimes,
        exclusions,
        ignored,
        failures(timelines, counted),
        {**results.announcers, **announcers},
        {day: number for day, number in results.archived.items() if day == run.day},
    )


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


def _exclusions(
    run: PublishedRun, site: str, endpoints: Sequence[Names], ignored: Iterable[Ignored]
) -> list[Exclusion]:
    """The exclusions of the run that apply to a site, or to one of its endpoints."""
    of_hosts = {result.exclusion for result in ignored}
    return [
        exclusion
        for exclusion in run.exclusions
        if exclusion in of_hosts
        or (exclusion.kind == GROUP and exclusion.site == site)
        or any(
            exclusion.kind == METRIC
            and exclusion.covers(*names)
            and exclusion.metric_name in run.profile.metrics_of(names[1])
            for names in endpoints
        )
    ]


def _thing(
    level: str,
    names: Names,
    timelines: Timelines,
    run: PublishedRun,
    evidence_for: Mapping[Segment, Evidence],
    downtimes: Sequence[Downtime],
    exclusions: Sequence[Exclusion],
) -> Thing:
    profile, segments = run.profile, timelines.of[level, names]
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
            and downtime.covers(*names)
            and any(a < end and b > start for a, b in downtime.counted(profile))
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
                replace(evidence_for[metric], decides=metric in deciding)
                for metric in metrics
                if metric.status != FINE
            ]
        reasons.append(Reason(start, end, status, deciding, evidence, in_downtime, excluded))
    return Thing(level, names, seconds_of(segments), segments, operation, reasons)
