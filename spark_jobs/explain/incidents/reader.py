"""The incidents of sites with their causes, from what a report has published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from itertools import chain, groupby
from operator import attrgetter

from sqlalchemy import Connection

from sam_pipeline.spark_jobs.explain.causes import Failure
from sam_pipeline.spark_jobs.explain.failures import failing_instances, failures
from sam_pipeline.spark_jobs.explain.incidents.figures import ReportIncidents
from sam_pipeline.spark_jobs.explain.incidents.incident import (
    Incident,
    find_incidents,
    in_order,
    with_causes,
)
from sam_pipeline.spark_jobs.explain.results import (
    MAX_RESULTS_OF_SITE,
    CountedResults,
    read_results,
)
from sam_pipeline.spark_jobs.explain.timelines import Timelines
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.levels import SITE
from sam_pipeline.spark_jobs.runs.published import (
    PublishedRun,
    Segment,
    day_figures,
    day_members,
    published_runs,
    timeline,
)
from sam_pipeline.sql.archive.store import OpenArchive, no_archive


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
            # Of the levels below, only the days of the incidents are read.
            touched = [run for run in runs if _touches(run, found)]
            run_of = {run.day: run for run in touched}
            days_read = Period(touched[0].day, touched[-1].day)
            below = timeline(connection, report, days_read, site=name, ok_metrics=False)
            timelines = {
                day: Timelines(of_day, run_of[day].profile)
                for day, of_day in groupby(below, attrgetter("day"))
                if day in run_of
            }
            failing = set().union(*map(failing_instances, timelines.values()))
            results = read_results(
                connection,
                touched,
                failing,
                with_ok=False,
                at_most=MAX_RESULTS_OF_SITE,
                archive=archive,
            )
            failures_on = {
                day: failures(of_day, CountedResults(run_of[day], results))
                for day, of_day in timelines.items()
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
