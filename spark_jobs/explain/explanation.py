"""Explains a site's figures on a day: its segments and their causes, down to results.

The failures of a day are the metrics that were not OK, and whether that cost availability. The
pages and `sam-report explain` show the same failures in the same two classes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from fractions import Fraction
from functools import cached_property
from itertools import groupby
from operator import attrgetter

from sqlalchemy import Connection

from sam_pipeline.schema.program.wording import did_you_mean_or_list
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.explain.causes import Failure
from sam_pipeline.spark_jobs.explain.results import (
    NO_RESULT,
    CountedResults,
    Evidence,
    Ignored,
    Instance,
    JudgedResult,
    ReadResults,
    Result,
    evidence_of,
    first_second,
    instance_of,
    lapse_of,
    read_results,
    threshold_text,
)
from sam_pipeline.spark_jobs.explain.timelines import FINE, Span, Timelines, costly_spans
from sam_pipeline.spark_jobs.inputs.announced import (
    MONITORING_HOST,
    Downtime,
    Exclusion,
    announcers,
    members,
    validity_of_site,
)
from sam_pipeline.spark_jobs.profiles.in_words import expected_sites
from sam_pipeline.spark_jobs.rules.days import Period, moment
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, FUNCTION, METRIC, SERVICE, SITE
from sam_pipeline.spark_jobs.rules.seconds import Seconds, rounded
from sam_pipeline.spark_jobs.runs.published import (
    Names,
    PublishedRun,
    Segment,
    published_runs,
    timeline,
)
from sam_pipeline.sql.archive.store import OpenArchive, no_archive


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
        for result in counted.ignored(instance, first_second(run, instance[2]), run.end)
    ]
    downtimes = [
        downtime
        for downtime in run.downtimes
        if downtime.touches(run.start, run.end)
        and any(downtime.covers(*names) for names in endpoints)
    ]
    of_hosts = {result.exclusion for result in ignored}
    exclusions = [
        exclusion
        for exclusion in run.exclusions
        if exclusion in of_hosts
        or (exclusion.kind == SITE and exclusion.site == site)
        or any(
            exclusion.kind == METRIC
            and exclusion.covers(*names)
            and exclusion.metric_name in run.profile.metrics_of(names[1])
            for names in endpoints
        )
    ]
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


def read_failing(
    connection: Connection,
    runs: Sequence[PublishedRun],
    segments_on: Mapping[date, Iterable[Segment]],
    at_most: int | None = None,
    archive: OpenArchive = no_archive,
) -> ReadResults:
    """All results that explain why metrics were not OK, from the segments of a site's days.

    Of the results that were OK these are the last ones before times without any, and those of
    excluded monitoring hosts.
    """
    instances: set[Instance] = set()
    lapses = []
    for run in runs:
        has_host = any(exclusion.kind == MONITORING_HOST for exclusion in run.exclusions)
        for segment in segments_on.get(run.day, ()):
            if segment.level == METRIC and segment.status != FINE:
                instances.add(instance_of(segment))
                if lapse := lapse_of(segment, run):
                    lapses.append(lapse)
            elif segment.level == ENDPOINT and has_host:
                # Any of the site's results may be from the excluded host.
                _, flavour, host = segment.names
                metrics = run.profile.metrics_of(flavour)
                instances.update((flavour, host, metric) for metric in metrics)
    return read_results(
        connection, runs, instances, with_ok=False, lapses=lapses, at_most=at_most, archive=archive
    )


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
        monitoring_host=result.monitoring_host,
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
            if (level, status, exclusion.kind) == (SITE, "UNKNOWN", SITE)
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


@dataclass(frozen=True)
class Selection:
    """A site, or its endpoints of one flavour, one host or both."""

    site: str
    service_flavour: str | None = None
    host_name: str | None = None

    def has(self, names: Names) -> bool:
        """Whether an endpoint or a metric with these names is selected."""
        _, flavour, host, *_ = names
        return self.service_flavour in (None, flavour) and self.host_name in (None, host)

    def things(self, site_day: SiteDay) -> list[Thing]:
        """The selected endpoints, and the services, functions and site they are folded into."""
        endpoints = [thing for thing in site_day.of_level(ENDPOINT) if self.has(thing.names)]
        flavours = {thing.names[1] for thing in endpoints}
        profile = site_day.run.profile
        functions = {name for flavour in flavours for name in profile.functions_of(flavour)}
        return [
            *site_day.of_level(SITE),
            *(thing for thing in site_day.of_level(FUNCTION) if thing.names[1] in functions),
            *(thing for thing in site_day.of_level(SERVICE) if thing.names[1] in flavours),
            *endpoints,
        ]

    def failures(self, site_day: SiteDay) -> list[Failure]:
        """The failures of the selected endpoints."""
        return [
            failure
            for failure in site_day.failures
            if self.has((site_day.site, failure.service_flavour, failure.host_name))
        ]


def read_site_days(
    connection: Connection,
    reports: Sequence[str],
    selection: Selection,
    period: Period,
    archive: OpenArchive = no_archive,
) -> list[SiteDay]:
    """The site's days in each of the reports that has selected endpoints.

    Raises:
        ReportUsage: no report has any; the message suggests sites or endpoints.
    """
    announced_by = announcers(connection, period)
    days = []
    for name in reports:
        runs = {run.day: run for run in published_runs(connection, name, period)}
        read = timeline(connection, name, period, site=selection.site)
        segments_on = {day: list(of_day) for day, of_day in groupby(read, attrgetter("day"))}
        chosen = {
            day: [
                s for s in segments if s.level not in (ENDPOINT, METRIC) or selection.has(s.names)
            ]
            for day, segments in segments_on.items()
        }
        results = read_failing(connection, list(runs.values()), chosen, archive=archive)
        days += [
            explain_site(
                name,
                selection.site,
                runs[day],
                Timelines(segments, runs[day].profile),
                results,
                announced_by,
            )
            for day, segments in segments_on.items()
        ]
    if reports and not days:
        raise ReportUsage(_absence(connection, reports, selection.site, period))
    selected = [
        site_day
        for site_day in days
        if any(selection.has(thing.names) for thing in site_day.of_level(ENDPOINT))
    ]
    if days and not selected:
        endpoints = [thing.names[1:] for thing in days[0].of_level(ENDPOINT)]
        flavour, host = selection.service_flavour, selection.host_name
        if host is None:
            known = {known_flavour for known_flavour, _ in endpoints}
        elif flavour is None:
            known = {known_host for _, known_host in endpoints}
        else:
            known = set(map(" ".join, endpoints))
        name = " ".join(filter(None, (flavour, host)))
        hint = did_you_mean_or_list(name, known)
        raise ReportUsage(f"no endpoint {name} at {selection.site} on {period}: {hint}")
    return selected


def _absence(connection: Connection, reports: Sequence[str], site: str, period: Period) -> str:
    """Why none of the reports has the site on a day: the topology, or a mistyped name."""
    no_site = f"no site {site} on {period}"
    validity = validity_of_site(connection, site)
    if validity is None:
        sites = {
            segment.names[0]
            for name in reports
            for segment in timeline(connection, name, period, level=SITE)
        }
        return f"{no_site}: {did_you_mean_or_list(site, sites)}"
    first, last = validity
    if first >= period.end:
        return f"{no_site}: it is in the topology from {format_time(moment(first))} on"
    if last is not None and last <= period.start:
        return f"{no_site}: it was in the topology until {format_time(moment(last))}"
    groups = [
        (member.group_type, member.group_name)
        for day in period.days()
        for member in members(connection, day)
        if member.site == site
    ]
    profiles = {
        name: run.profile for name in reports for run in published_runs(connection, name, period)
    }
    patterns = [
        f"; {name} expects {expected_sites(profile)}"
        for name, profile in profiles.items()
        if not profile.expects(site, groups)
    ]
    return (
        f"{no_site}: it is in the topology, but none of its endpoints is expected that day by"
        f" {', '.join(reports)}{''.join(patterns)}"
    )
