"""What made a site's figures on a day: its segments, what they follow from, down to results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property

from sam_pipeline.spark_jobs.explain.causes import Failure
from sam_pipeline.spark_jobs.explain.evidence import Evidence, evidence_of
from sam_pipeline.spark_jobs.explain.results import (
    Ignored,
    Instance,
    InstanceResults,
    JudgedResult,
    by_instance,
)
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Downtime, Exclusion, Result
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, FUNCTION, GROUP, METRIC, SERVICE, SITE
from sam_pipeline.spark_jobs.rules.seconds import Seconds, rounded
from sam_pipeline.spark_jobs.runs.published import Names, Run, Segment

FINE = "OK"
NO_RESULT = "no result"

_Key = tuple[str, Names]


@dataclass(frozen=True)
class Reason:
    """A segment that is not OK, and what it follows from.

    `deciding` are the segments of the children (a site's functions … an endpoint's metrics) that
    made it; `evidence` is what is behind the metrics of an endpoint, those that decide first.
    """

    start: int
    end: int
    status: str
    deciding: Sequence[Segment]
    evidence: Sequence[Evidence]
    downtimes: Sequence[Downtime]
    exclusions: Sequence[Exclusion]

    @property
    def causes(self) -> int:
        """How many things are told to have made it."""
        return len(self.deciding) + len(self.downtimes) + len(self.exclusions)


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

    `downtimes` and `exclusions` are those that touch it, the ones that changed nothing, too;
    `ignored` are its results that excluded monitoring hosts measured.
    """

    report: str
    site: str
    day: date
    until: int | None
    profile: Profile
    things: Sequence[Thing]
    downtimes: Sequence[Downtime]
    exclusions: Sequence[Exclusion]
    ignored: Sequence[Ignored]

    def of_level(self, level: str) -> list[Thing]:
        return [thing for thing in self.things if thing.level == level]

    @cached_property
    def thing_of(self) -> Mapping[tuple[str, Names], Thing]:
        """Things by level and names."""
        return {(thing.level, thing.names): thing for thing in self.things}

    def counts(self, downtime: Downtime) -> bool:
        """Whether a downtime changes states: of which kinds do is the profile's choice (rule 8)."""
        return self.profile.counts(downtime.classification, downtime.severity)

    @property
    def start(self) -> int:
        return day_start(self.day)

    @property
    def end(self) -> int:
        return self.start + DAY_S if self.until is None else self.until


def explain_site(
    report: str,
    site: str,
    run: Run,
    segments: Iterable[Segment],
    results: Iterable[Result],
    downtimes: Iterable[Downtime],
    exclusions: Sequence[Exclusion] = (),
) -> SiteDay:
    """The site's day, from its segments of all levels and what the run has read."""
    by_thing: dict[_Key, list[Segment]] = {}
    for segment in segments:
        by_thing.setdefault((segment.level, segment.names), []).append(segment)
    start = day_start(run.day)
    end = start + DAY_S if run.until is None else run.until
    endpoints = [names for level, names in by_thing if level == ENDPOINT]
    near = [
        each
        for each in downtimes
        if each.start < end and each.end > start and any(each.covers(*e) for e in endpoints)
    ]
    touching = [each for each in exclusions if _touches(each, site, endpoints, run.profile)]
    known = by_instance(results, run.profile, exclusions)
    search = _Search(by_thing, known, near, touching, run.profile)
    things = [
        search.thing(level, names)
        for wanted in (SITE, FUNCTION, SERVICE, ENDPOINT)
        for level, names in sorted(by_thing)
        if level == wanted
    ]
    here = {names[1:] for names in endpoints}
    ignored = [
        each
        for (flavour, host, _), found in sorted(known.items())
        if (flavour, host) in here
        for each in found.ignored
        if each.result.measured < end
    ]
    return SiteDay(report, site, run.day, run.until, run.profile, things, near, touching, ignored)


def failures(things: Iterable[Thing]) -> Iterator[Failure]:
    """What failed and counted, at the endpoints among the things: each result once.

    What only a downtime or an exclusion made is no failure; of a time without results there is one
    with the text NO_RESULT.
    """
    for thing in things:
        if thing.level == ENDPOINT:
            yield from dict.fromkeys(_failures(thing))


def arithmetic(seconds: Seconds) -> list[str]:
    """How the percentages come from the seconds, as anyone can check with a pencil."""
    up = f"OK {seconds.ok} + WARNING {seconds.warning}"
    not_known = f"not known {seconds.not_known}"
    without_downtime = f"{seconds.total} - {not_known} - downtime {seconds.downtime}"
    return [
        (
            f"availability = 100 x ({up}) / ({seconds.total} - {not_known})"
            f" = {_told(rounded(seconds.availability))}"
        ),
        (
            f"reliability = 100 x ({up}) / ({without_downtime})"
            f" = {_told(rounded(seconds.reliability))}"
        ),
        (
            f"not known = UNKNOWN {seconds.unknown} + MISSING {seconds.missing}"
            f" + EXCLUDED {seconds.excluded}; CRITICAL {seconds.critical}; all in seconds"
        ),
    ]


class _Search:
    """Finds what made the segments of a site's things."""

    def __init__(
        self,
        by_thing: Mapping[_Key, Sequence[Segment]],
        known: Mapping[Instance, InstanceResults],
        downtimes: Sequence[Downtime],
        exclusions: Sequence[Exclusion],
        profile: Profile,
    ) -> None:
        self._by_thing = by_thing
        self._known = known
        self._exclusions = exclusions
        self._profile = profile
        self._counting = [d for d in downtimes if profile.counts(d.classification, d.severity)]
        self._children: dict[_Key, list[Segment]] = {}
        for (level, names), segments in sorted(by_thing.items()):
            for parent in _parents(level, names, profile):
                self._children.setdefault(parent, []).extend(segments)

    def thing(self, level: str, names: Names) -> Thing:
        segments = self._by_thing[level, names]
        reasons = [self._reason(each) for each in segments if each.status != FINE]
        operation = _operation(level, names, self._profile)
        return Thing(level, names, _seconds(segments), segments, operation, reasons)

    def _reason(self, segment: Segment) -> Reason:
        children = [
            each
            for each in self._children.get((segment.level, segment.names), ())
            if each.start < segment.end and each.end > segment.start
        ]
        downtimes = self._downtimes(segment)
        exclusions = self._group_exclusions(segment)
        # What overwrites a fold leaves nothing to its children.
        covered = [(each.start, each.end) for each in downtimes]
        covered += [(each.start, each.end) for each in exclusions]
        deciding = _deciding(segment, children, covered)
        evidence = []
        if segment.level == ENDPOINT:
            bad = [each for each in children if each.status != FINE]
            deciders = [each for each in deciding if each.status != FINE]
            others = [each for each in bad if each not in deciding]
            evidence = [self._evidence(each, decides=True) for each in deciders]
            evidence += [self._evidence(each, decides=False) for each in others]
        about = (segment.start, segment.end, segment.status)
        return Reason(*about, deciding, evidence, downtimes, exclusions)

    def _downtimes(self, segment: Segment) -> list[Downtime]:
        if segment.level != ENDPOINT or segment.status != "DOWNTIME":
            return []
        return [
            each
            for each in self._counting
            if each.covers(*segment.names) and each.start < segment.end and each.end > segment.start
        ]

    def _group_exclusions(self, segment: Segment) -> list[Exclusion]:
        if segment.level != SITE or segment.status != "UNKNOWN":
            return []
        return [
            each
            for each in self._exclusions
            if each.kind == GROUP and each.start < segment.end and each.end > segment.start
        ]

    def _evidence(self, segment: Segment, *, decides: bool) -> Evidence:
        _, flavour, host, metric = segment.names
        known = self._known.get((flavour, host, metric), InstanceResults())
        return evidence_of(segment, known, self._exclusions, self._profile, decides)


def _touches(exclusion: Exclusion, site: str, endpoints: Sequence[Names], profile: Profile) -> bool:
    if exclusion.kind == MONITORING_HOST:
        return True
    if exclusion.kind == GROUP:
        return exclusion.site == site
    return any(
        exclusion.covers(*each) and exclusion.metric_name in profile.metrics_of(each[1])
        for each in endpoints
    )


def _parents(level: str, names: Names, profile: Profile) -> list[_Key]:
    """The things into which a thing is folded (availability rules 8 and 9)."""
    if level == METRIC:
        return [(ENDPOINT, names[:3])]
    if level == ENDPOINT:
        return [(SERVICE, names[:2])]
    if level == SERVICE:
        return [(FUNCTION, (names[0], each)) for each in profile.functions_of(names[1])]
    return [(SITE, names[:1])] if level == FUNCTION else []


def _operation(level: str, names: Names, profile: Profile) -> str:
    if level == ENDPOINT:
        return profile.metrics_operation
    if level == SITE:
        return profile.functions_operation
    if level == SERVICE:
        return next(f.endpoints_operation for f in profile.flavours if f.name == names[1])
    return next(f.flavours_operation for f in profile.functions if f.name == names[1])


def _deciding(
    segment: Segment, children: Sequence[Segment], covered: Sequence[tuple[int, int]]
) -> list[Segment]:
    """The children's segments that made a segment of their parent.

    Where a child has the parent's status, that child. An operation of the profile's own may answer
    what no child is: then all that are not OK, or all.
    """
    same = [
        each
        for each in children
        if each.status == segment.status
        and _uncovered(max(each.start, segment.start), min(each.end, segment.end), covered)
    ]
    spans = [*covered, *((each.start, each.end) for each in same)]
    left = _uncovered(segment.start, segment.end, spans)
    others = [
        each
        for each in children
        if each not in same and any(each.start < end and each.end > start for start, end in left)
    ]
    found = [*same, *([each for each in others if each.status != FINE] or others)]
    return sorted(found, key=lambda each: (each.start, each.names))


def _uncovered(start: int, end: int, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts of [start, end) in none of the spans."""
    left = []
    for first, last in sorted(spans):
        if first > start:
            left.append((start, min(first, end)))
        start = max(start, last)
        if start >= end:
            return left
    return [*left, (start, end)]


def _failures(thing: Thing) -> Iterator[Failure]:
    _, flavour, host = thing.names
    for reason in thing.reasons:
        if reason.status == "DOWNTIME":
            continue
        for each in reason.evidence:
            about = (flavour, host, each.metric_name, each.status)
            if each.status == "MISSING":
                yield Failure(*about, each.start, NO_RESULT, "")
            for result in _within(reason, each.results):
                yield Failure(*about, result.measured, _summary(result), result.message_id)


def _within(reason: Reason, results: Sequence[Result]) -> list[Result]:
    """The results of a segment: the one that held when it began, and those in it."""
    before = [each for each in results if each.measured <= reason.start]
    return [*before[-1:], *(each for each in results if reason.start < each.measured < reason.end)]


def _summary(result: Result) -> str:
    """What the probe said; where a threshold judged otherwise, that first."""
    if isinstance(result, JudgedResult):
        return f"threshold on {result.value.label}: {result.summary}"
    return result.summary


def _seconds(segments: Iterable[Segment]) -> Seconds:
    held: dict[str, int] = {}
    for segment in segments:
        name = segment.status.lower()
        held[name] = held.get(name, 0) + segment.end - segment.start
    return Seconds(**held)


def _told(value: object) -> str:
    return "undefined: no time is known" if value is None else str(value)
