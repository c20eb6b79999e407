"""Incidents of sites: how often they fail, for how long, and why.

An incident begins when the site becomes CRITICAL, and ends with the last CRITICAL second before the
site is up again (OK or WARNING). Time without a known status (UNKNOWN, MISSING, EXCLUDED) between
two CRITICAL times belongs to the incident, because nothing showed that the site had been repaired.
A downtime that counts ends an incident: from then on the outage is announced. So does a day without
figures. Midnight and the end of a month do not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from itertools import chain, groupby
from math import exp, lgamma, log
from operator import attrgetter

from sqlalchemy import Connection

from sam_pipeline.spark_jobs.explain.causes import Cause, Failure, causes
from sam_pipeline.spark_jobs.explain.explanation import failures, read_failing
from sam_pipeline.spark_jobs.explain.results import MAX_RESULTS_OF_SITE, CountedResults
from sam_pipeline.spark_jobs.explain.timelines import Timelines
from sam_pipeline.spark_jobs.rules.days import Period, moment
from sam_pipeline.spark_jobs.rules.figures import Member
from sam_pipeline.spark_jobs.rules.levels import SITE
from sam_pipeline.spark_jobs.runs.published import (
    DayFigure,
    Names,
    PublishedRun,
    Segment,
    day_figures,
    day_members,
    published_runs,
    timeline,
)
from sam_pipeline.sql.archive.store import OpenArchive, no_archive

LOOK_AT = "look at the probe or the broker first"
MIN_SITES = 3
"""How many sites at least make a shared cause."""
BY_CHANCE = 0.001
"""How many shared causes chance may be expected to give in a period, at most."""

_MAX_HOSTS = 3
_NOT_KNOWN = ("UNKNOWN", "MISSING", "EXCLUDED")


@dataclass(frozen=True)
class Incident:
    """A time [start, end) in epoch seconds in which a site failed, within a period.

    If it `began_before`, the site failed from the first second of the period. If it `is_open`,
    the site was not up again by the end of the period, or of its data.
    """

    site: str
    start: int
    end: int
    began_before: bool
    is_open: bool
    causes: Sequence[Cause] = ()

    @property
    def duration_s(self) -> int:
        return self.end - self.start

    def touches(self, start: int, end: int) -> bool:
        return self.start < end and self.end > start

    @property
    def cause(self) -> Cause | None:
        """The cause with the worst status, and of these the most frequent one."""
        return self.causes[0] if self.causes else None


def find_incidents(site: str, segments: Iterable[Segment], start: int) -> list[Incident]:
    """The incidents of a site in a period from `start` on, without causes.

    `segments` are those of the site, in order of time.
    """
    spans: list[tuple[int, int]] = []
    lasts, last_end = False, start
    for segment in segments:
        lasts = lasts and segment.start == last_end
        last_end = segment.end
        if segment.status == "CRITICAL":
            spans.append((spans.pop()[0] if lasts else segment.start, segment.end))
            lasts = True
        elif segment.status not in _NOT_KNOWN:
            lasts = False
    return [
        Incident(site, *span, began_before=span[0] == start, is_open=lasts and span is spans[-1])
        for span in spans
    ]


def with_causes(incident: Incident, failures: Iterable[Failure]) -> Incident:
    """The incident with the causes of the failures that cost availability while it lasted."""
    # A failure that lasts over midnight is one of both days.
    during = {
        (failure.service_flavour, failure.host_name, failure.metric_name, failure.at): failure
        for failure in failures
        if failure.costs and incident.touches(failure.at, failure.until)
    }
    return replace(incident, causes=causes(during.values()))


def longest_first(incidents: Iterable[Incident]) -> list[Incident]:
    return sorted(incidents, key=lambda i: (-i.duration_s, i.start, i.site))


def in_order(incidents: Iterable[Incident]) -> list[Incident]:
    """The incidents in order of time, then by site."""
    return sorted(incidents, key=lambda incident: (incident.start, incident.site))


@dataclass(frozen=True)
class IncidentFigures:
    """The incidents of a site, a group or a report over a period, in seconds.

    `mttr_s` is the mean time to repair: the mean duration of the incidents that began and ended
    within the period. `mtbf_s` is the mean time between failures: the time in which the sites were
    up, divided by the number of incidents. Both are None if there is nothing to divide by.
    """

    number: int
    open: int
    longest_s: int
    total_s: int
    mttr_s: int | None
    mtbf_s: int | None


def figures_of(incidents: Sequence[Incident], up_s: int) -> IncidentFigures:
    durations = [incident.duration_s for incident in incidents]
    whole = [i.duration_s for i in incidents if not i.is_open and not i.began_before]
    return IncidentFigures(
        number=len(incidents),
        open=sum(incident.is_open for incident in incidents),
        longest_s=max(durations, default=0),
        total_s=sum(durations),
        mttr_s=sum(whole) // len(whole) if whole else None,
        mtbf_s=up_s // len(incidents) if incidents else None,
    )


@dataclass(frozen=True)
class ReportIncidents:
    """The incidents of a report over a period, in order of time.

    `days` are the figures of its sites, and `members` the members of groups, on each day.
    """

    report: str
    period: Period
    runs: Sequence[PublishedRun]
    incidents: Sequence[Incident]
    days: Sequence[DayFigure]
    members: Sequence[tuple[date, Member]] = ()

    @property
    def longest_first(self) -> list[Incident]:
        return longest_first(self.incidents)

    @cached_property
    def shared(self) -> list[SharedCause]:
        return shared_causes(self.incidents, sum(run.end - run.start for run in self.runs))

    @property
    def total(self) -> IncidentFigures:
        return figures_of(self.incidents, sum(day.seconds.up for day in self.days))

    def by_site(self) -> dict[Names, IncidentFigures]:
        """The sites with incidents: the longest total first."""
        return self._by({(day.day, day.names[0]): [day.names] for day in self.days})

    def by_group(self) -> dict[Names, IncidentFigures]:
        """The groups with incidents, by type and name: the longest total first.

        An incident counts in the groups of which its site was a member when it began.
        """
        groups: dict[tuple[date, str], list[Names]] = {}
        for day, member in self.members:
            group = (member.group_type, member.group_name)
            groups.setdefault((day, member.site), []).append(group)
        return self._by(groups)

    def _by(
        self, things: Mapping[tuple[date, str], Sequence[Names]]
    ) -> dict[Names, IncidentFigures]:
        """The figures of all things with incidents that a site counts in on a day."""
        incidents: dict[Names, list[Incident]] = {}
        for incident in self.incidents:
            for names in things.get((moment(incident.start).date(), incident.site), ()):
                incidents.setdefault(names, []).append(incident)
        up_s = dict.fromkeys(incidents, 0)
        for day in self.days:
            for names in things.get((day.day, day.names[0]), ()):
                if names in up_s:
                    up_s[names] += day.seconds.up
        figures = {
            names: figures_of(of_thing, up_s[names]) for names, of_thing in incidents.items()
        }
        return dict(sorted(figures.items(), key=lambda item: (-item[1].total_s, item[0])))


@dataclass(frozen=True)
class SharedCause:
    """The `sites` whose incidents with one message began together; it lasted in [start, end).

    `causes` are those of their incidents: mostly the same, but the message may come from several
    metrics. `monitoring_hosts` measured them, the one of the most sites first.
    """

    causes: Sequence[Cause]
    sites: Sequence[str]
    monitoring_hosts: Sequence[str]
    start: int
    end: int

    @property
    def cause(self) -> Cause:
        """The cause of the first of the incidents, as an example."""
        return self.causes[0]

    @property
    def text(self) -> str:
        return self.cause.text or "(no text)"

    @property
    def measured_by(self) -> str:
        """The monitoring hosts in words; empty if none is known."""
        hosts = list(self.monitoring_hosts)
        if len(hosts) > _MAX_HOSTS:
            hosts[_MAX_HOSTS:] = [f"{len(hosts) - _MAX_HOSTS} more"]
        return f"measured by {', '.join(hosts)}" if hosts else ""


def shared_causes(incidents: Iterable[Incident], period_s: int) -> list[SharedCause]:
    """Where the incidents of several sites with one message began together: most sites first.

    They began within one interval of the probes, and chance does not explain them: if incidents
    with their messages began at random times, as often as in the whole period, at most BY_CHANCE
    entries would be expected. The message of an incident is that of its cause.
    """
    of_message: dict[Sequence[str], list[tuple[Incident, Cause]]] = {}
    for incident in in_order(incidents):
        cause = incident.cause
        if cause and cause.example.measured and not incident.began_before:
            of_message.setdefault(cause.key[2:], []).append((incident, cause))
    number = sum(map(len, of_message.values()))
    shared = []
    for begun in of_message.values():
        failures = [failure for _, cause in begun for failure in cause.failures]
        lengths = sorted(failure.until - failure.at for failure in failures if failure.measured)
        interval_s = lengths[len(lengths) * 9 // 10]  # the longest are those after lost results
        # If all probes run at the same minute, an interval has two rounds of them.
        usual = 2 * len(begun) * interval_s / max(period_s, 1)
        starts = [incident.start for incident, _ in begun]
        windows = []
        for first, start in enumerate(starts):
            together = begun[first : bisect_left(starts, start + interval_s, first)]
            sites = len({incident.site for incident, _ in together})
            if sites >= MIN_SITES and number * _chance(sites - 1, usual) <= BY_CHANCE:
                windows.append((sites, together))
        taken: list[int] = []
        for _, together in sorted(windows, key=lambda window: (-window[0], window[1][0][0].start)):
            start = together[0][0].start
            if all(abs(start - other) >= interval_s for other in taken):
                taken.append(start)
                shared.append(_shared(together))
    return sorted(shared, key=lambda each: (-len(each.sites), each.start, each.text))


def _chance(events: int, usual: float) -> float:
    """An upper bound on the probability of `events` or more, if `usual` are expected (Poisson).

    The terms of the distribution from there on decrease faster than a geometric series.
    """
    if usual >= events + 1:
        return 1.0
    logarithm = events * log(usual) - usual - lgamma(events + 1)
    return exp(logarithm) / (1 - usual / (events + 1))


def _shared(together: Sequence[tuple[Incident, Cause]]) -> SharedCause:
    causes = [cause for _, cause in together]
    sites_of: dict[str, set[str]] = {}
    for incident, cause in together:
        for failure in cause.failures:
            if failure.monitoring_host:
                sites_of.setdefault(failure.monitoring_host, set()).add(incident.site)
    return SharedCause(
        causes,
        sorted({incident.site for incident, _ in together}),
        sorted(sites_of, key=lambda host: (-len(sites_of[host]), host)),
        together[0][0].start,
        max(min(i.end, max(f.until for f in cause.failures)) for i, cause in together),
    )


def incidents_without_causes(
    connection: Connection, report: str, period: Period, site: str | None = None
) -> dict[str, list[Incident]]:
    """The incidents of all sites, or of one, by site: quick to read, as no result is looked up."""
    of_sites: dict[str, list[Segment]] = {}
    for segment in timeline(connection, report, period, site=site, level=SITE):
        of_sites.setdefault(segment.names[0], []).append(segment)
    return {
        name: find_incidents(name, segments, period.start) for name, segments in of_sites.items()
    }


def read_incidents(
    connection: Connection,
    report: str,
    period: Period,
    site: str | None = None,
    archive: OpenArchive = no_archive,
) -> ReportIncidents:
    """The incidents of a report, or of one of its sites, over a period."""
    runs = published_runs(connection, report, period)
    incidents: list[Incident] = []
    for name, found in incidents_without_causes(connection, report, period, site).items():
        if found:
            # The levels below the site are read for the days of the incidents only.
            touched = [run for run in runs if _touches(run, found)]
            run_of = {run.day: run for run in touched}
            days_read = Period(touched[0].day, touched[-1].day)
            below = timeline(connection, report, days_read, site=name, ok_metrics=False)
            segments_on = {
                day: list(of_day)
                for day, of_day in groupby(below, attrgetter("day"))
                if day in run_of
            }
            results = read_failing(connection, touched, segments_on, MAX_RESULTS_OF_SITE, archive)
            failures_on = {
                day: failures(
                    Timelines(of_day, run_of[day].profile), CountedResults(run_of[day], results)
                )
                for day, of_day in segments_on.items()
            }
            incidents += _with_causes(found, failures_on, touched)
    days = [
        day
        for day in day_figures(connection, report, SITE, period)
        if site is None or day.names == (site,)
    ]
    members = list(day_members(connection, report, period))
    return ReportIncidents(report, period, runs, in_order(incidents), days, members)


def site_incidents(
    site: str,
    timelines: Mapping[date, Timelines],
    failures_on: Mapping[date, Sequence[Failure]],
    runs: Sequence[PublishedRun],
) -> list[Incident]:
    """The incidents of a site, from its timelines and failures on all days."""
    segments = [
        segment for _, of_day in sorted(timelines.items()) for segment in of_day.of[SITE, (site,)]
    ]
    found = find_incidents(site, segments, runs[0].start)
    return _with_causes(found, failures_on, runs)


def _with_causes(
    found: Sequence[Incident],
    failures_on: Mapping[date, Sequence[Failure]],
    runs: Sequence[PublishedRun],
) -> list[Incident]:
    return [
        with_causes(
            incident,
            chain.from_iterable(
                failures_on.get(run.day, ()) for run in runs if _touches(run, [incident])
            ),
        )
        for incident in found
    ]


def _touches(run: PublishedRun, incidents: Sequence[Incident]) -> bool:
    return any(incident.touches(run.start, run.end) for incident in incidents)
