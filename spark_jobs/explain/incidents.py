"""Incidents of sites: how often they fail, for how long, and why.

An incident begins when the site becomes CRITICAL, and ends with the last CRITICAL second before the
site is up again (OK or WARNING). Time without a known status (UNKNOWN, MISSING, EXCLUDED) between
two CRITICAL times belongs to the incident, because nothing showed that the site had been repaired.
A downtime that counts ends an incident: from then on the outage is announced. So does a day without
figures. Midnight and the end of a month do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import chain, groupby
from operator import attrgetter

from sqlalchemy import Connection

from sam_pipeline.spark_jobs.explain.causes import Cause, Failure, Key, causes
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
    """The `sites` that had incidents with the same cause at one time, [start, end).

    `cause` is that of one incident, with its failures, as an example.
    """

    cause: Cause
    sites: Sequence[str]
    start: int
    end: int


def shared_causes(incidents: Iterable[Incident]) -> list[SharedCause]:
    """The most sites at once for each cause of at least two, the largest number of sites first.

    The cause of an incident is its first: the worst status, and of these the most frequent. Of two
    times with equally many sites the earlier counts. Incidents that overlap one another, even
    through others, give one entry.
    """
    of_cause: dict[Key, tuple[Cause, list[Incident]]] = {}
    for incident in sorted(incidents, key=lambda incident: (incident.start, incident.site)):
        if cause := incident.cause:
            of_cause.setdefault(cause.key, (cause, []))[1].append(incident)
    shared = []
    for cause, of_one in of_cause.values():
        for overlapping in _overlapping(of_one):
            most: list[Incident] = []
            lasting: list[Incident] = []
            for incident in overlapping:  # the number of sites is largest when one of them begins
                lasting = [each for each in lasting if each.end > incident.start] + [incident]
                if len(lasting) > len(most):
                    most = lasting
            if len(most) > 1:
                start, end = max(each.start for each in most), min(each.end for each in most)
                shared.append(SharedCause(cause, sorted(each.site for each in most), start, end))
    return sorted(shared, key=lambda each: (-len(each.sites), each.start, each.cause.text))


def _overlapping(incidents: Sequence[Incident]) -> list[list[Incident]]:
    """The incidents, which are in order of time, cut where none lasts."""
    chains: list[list[Incident]] = []
    end = 0
    for incident in incidents:
        if not chains or incident.start >= end:
            chains.append([])
        chains[-1].append(incident)
        end = max(end, incident.end)
    return chains


def read_incidents(
    connection: Connection,
    report: str,
    period: Period,
    site: str | None = None,
    archive: OpenArchive = no_archive,
) -> ReportIncidents:
    """The incidents of a report, or of one of its sites, over a period."""
    runs = published_runs(connection, report, period)
    of_sites: dict[str, list[Segment]] = {}
    for segment in timeline(connection, report, period, site=site, level=SITE):
        of_sites.setdefault(segment.names[0], []).append(segment)
    incidents: list[Incident] = []
    for name, segments in of_sites.items():
        if found := find_incidents(name, segments, period.start):
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
