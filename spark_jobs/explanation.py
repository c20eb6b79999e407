"""What made a site's figures on a day: its segments, and the results and downtimes behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from spark_jobs.database_inputs import Downtime, Result
from spark_jobs.days import DAY_S, day_start
from spark_jobs.figures import Seconds, rounded
from spark_jobs.levels import ENDPOINT, FUNCTION, METRIC, SERVICE, SITE
from spark_jobs.profile import Profile
from spark_jobs.stored import Names, Run, Segment

FINE = "OK"


@dataclass(frozen=True)
class Evidence:
    """A metric's part in a segment of its endpoint, and the results that say so, oldest first.

    Without results: there were none (MISSING).
    """

    metric_name: str
    start: int
    end: int
    status: str
    results: Sequence[Result]


@dataclass(frozen=True)
class Reason:
    """A segment of an endpoint that is not OK, and what made it."""

    start: int
    end: int
    status: str
    evidence: Sequence[Evidence]
    downtimes: Sequence[Downtime]


@dataclass(frozen=True)
class Thing:
    """A site, function, service or endpoint on a day."""

    level: str
    names: Names
    seconds: Seconds
    segments: Sequence[Segment]
    reasons: Sequence[Reason] = ()

    @property
    def is_fine(self) -> bool:
        return all(segment.status == FINE for segment in self.segments)


@dataclass(frozen=True)
class SiteDay:
    """Everything about one site on one day."""

    report: str
    site: str
    day: date
    until: int | None
    things: Sequence[Thing]
    downtimes: Sequence[Downtime]

    def of_level(self, level: str) -> list[Thing]:
        return [thing for thing in self.things if thing.level == level]

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
    results: Sequence[Result],
    downtimes: Sequence[Downtime],
) -> SiteDay:
    """The site's day, from its segments of all levels and what else the database holds of it."""
    start, end = day_start(run.day), day_start(run.day) + DAY_S
    near = [each for each in downtimes if each.start < end and each.end > start]
    by_thing: dict[tuple[str, Names], list[Segment]] = {}
    for segment in segments:
        by_thing.setdefault((segment.level, segment.names), []).append(segment)
    metrics = {key: found for key, found in by_thing.items() if key[0] == METRIC}
    search = _Search(metrics, results, near, run.profile)
    things = [
        Thing(level, names, _seconds(found), found, search.reasons(found))
        for wanted in (SITE, FUNCTION, SERVICE, ENDPOINT)
        for (level, names), found in sorted(by_thing.items())
        if level == wanted
    ]
    here = {thing.names for thing in things if thing.level == ENDPOINT}
    touching = [each for each in near if any(each.covers(*names) for names in here)]
    return SiteDay(report, site, run.day, run.until, things, touching)


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
    """Finds what made the segments of an endpoint."""

    def __init__(
        self,
        metrics: dict[tuple[str, Names], list[Segment]],
        results: Sequence[Result],
        downtimes: Sequence[Downtime],
        profile: Profile,
    ) -> None:
        self._metrics = metrics
        self._downtimes = downtimes
        self._profile = profile
        self._results: dict[tuple[str, str, str], list[Result]] = {}
        for result in results:
            key = (result.service_flavour, result.host_name, result.metric_name)
            self._results.setdefault(key, []).append(result)

    def reasons(self, segments: Sequence[Segment]) -> list[Reason]:
        if segments[0].level != ENDPOINT:
            return []
        return [self._reason(segment) for segment in segments if segment.status != FINE]

    def _reason(self, segment: Segment) -> Reason:
        counting = [
            each
            for each in self._downtimes
            if each.covers(*segment.names)
            and self._profile.counts(each.classification, each.severity)
            and each.start < segment.end
            and each.end > segment.start
        ]
        downtimes = counting if segment.status == "DOWNTIME" else []
        evidence = [
            self._evidence(found)
            for (_, names), metric in self._metrics.items()
            if names[:-1] == segment.names
            for found in metric
            if found.status != FINE and found.start < segment.end and found.end > segment.start
        ]
        return Reason(segment.start, segment.end, segment.status, evidence, downtimes)

    def _evidence(self, segment: Segment) -> Evidence:
        _, *key = segment.names
        known = [
            result
            for result in self._results.get((key[0], key[1], key[2]), [])
            if result.status == segment.status and result.measured < segment.end
        ]
        inside = [result for result in known if result.measured >= segment.start]
        # A state that begins with the day comes from a result of the day before.
        before = [result for result in known if result.measured < segment.start]
        starts_inside = any(result.measured == segment.start for result in inside)
        results = inside if starts_inside else [*before[-1:], *inside]
        return Evidence(key[2], segment.start, segment.end, segment.status, results)


def _seconds(segments: Iterable[Segment]) -> Seconds:
    held: dict[str, int] = {}
    for segment in segments:
        status = segment.status.lower()
        held[status] = held.get(status, 0) + segment.end - segment.start
    return Seconds(**held)


def _told(value: object) -> str:
    return "undefined: no time is known" if value is None else str(value)
