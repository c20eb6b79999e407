"""Reads the incidents of published reports, with their causes."""

from __future__ import annotations

from itertools import chain

from sqlalchemy import Connection

from sam_pipeline.spark_jobs.explain.incidents.figures import ReportIncidents
from sam_pipeline.spark_jobs.explain.incidents.incident import (
    Incident,
    find_incidents,
    in_order,
    with_causes,
)
from sam_pipeline.spark_jobs.explain.incidents.site_failures import read_site_failures
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.levels import SITE
from sam_pipeline.spark_jobs.runs.published import (
    Segment,
    day_figures,
    day_members,
    published_runs,
    timeline,
)


def read_incidents(
    connection: Connection, report: str, period: Period, site: str | None = None
) -> ReportIncidents:
    """The incidents of a report, or of one of its sites, over a period."""
    runs = published_runs(connection, report, period)
    of_sites: dict[str, list[Segment]] = {}
    for segment in timeline(connection, report, period, site=site, level=SITE):
        of_sites.setdefault(segment.names[0], []).append(segment)
    incidents: list[Incident] = []
    for name, segments in of_sites.items():
        if found := find_incidents(name, segments, period.start):
            touched = [run for run in runs if any(i.touches(run.start, run.end) for i in found)]
            failures = read_site_failures(connection, report, name, touched).failures
            of_site = list(chain.from_iterable(failures.values()))
            incidents += [with_causes(incident, of_site) for incident in found]
    days = [
        day
        for day in day_figures(connection, report, SITE, period)
        if site is None or day.names == (site,)
    ]
    members = list(day_members(connection, report, period))
    return ReportIncidents(report, period, runs, in_order(incidents), days, members)
