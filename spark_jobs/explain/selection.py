"""The days of a site to explain, in each report, and a selection of its endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from sqlalchemy import Connection

from sam_pipeline.schema.program.wording import did_you_mean_or_list
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.explain.causes import Failure
from sam_pipeline.spark_jobs.explain.explanation import SiteDay, Thing, explain_site
from sam_pipeline.spark_jobs.explain.phrases import time_text
from sam_pipeline.spark_jobs.explain.results import read_results
from sam_pipeline.spark_jobs.explain.timelines import Timelines
from sam_pipeline.spark_jobs.inputs.announced import announcers, members, validity_of_site
from sam_pipeline.spark_jobs.profiles.in_words import expected_sites
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, FUNCTION, METRIC, SERVICE, SITE
from sam_pipeline.spark_jobs.runs.published import (
    Names,
    published_reports,
    published_runs,
    timeline,
)
from sam_pipeline.sql.archive.store import OpenArchive, no_archive


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
    report: str | None,
    selection: Selection,
    period: Period,
    archive: OpenArchive = no_archive,
) -> list[SiteDay]:
    """The site's days in each report that has selected endpoints.

    Of several days, results that were OK are left out.

    Raises:
        ReportUsage: no report has any; the message suggests sites or endpoints.
    """
    reports = published_reports(connection, report, period)
    announced_by = announcers(connection, period)
    days = []
    for name in reports:
        runs = {run.day: run for run in published_runs(connection, name, period)}
        segments = timeline(connection, name, period, site=selection.site)
        timelines = {
            day: Timelines(of_day, runs[day].profile)
            for day, of_day in groupby(segments, attrgetter("day"))
        }
        instances = {
            (flavour, host, metric)
            for of_day in timelines.values()
            for _, (site, flavour, host, metric) in of_day.of_level(METRIC)
            if selection.has((site, flavour, host))
        }
        one_day = period.first == period.last
        results = read_results(
            connection, list(runs.values()), instances, with_ok=one_day, archive=archive
        )
        days += [
            explain_site(name, selection.site, runs[day], of_day, results, announced_by)
            for day, of_day in timelines.items()
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
    validity = validity_of_site(connection, site)
    if validity is None:
        sites = {
            segment.names[0]
            for name in reports
            for segment in timeline(connection, name, period, level=SITE)
        }
        return f"no site {site} on {period}: {did_you_mean_or_list(site, sites)}"
    first, last = validity
    if first >= period.end:
        return f"no site {site} on {period}: it is in the topology from {time_text(first)} on"
    if last is not None and last <= period.start:
        return f"no site {site} on {period}: it was in the topology until {time_text(last)}"
    profiles = {
        name: run.profile for name in reports for run in published_runs(connection, name, period)
    }
    groups = [
        (member.group_type, member.group_name)
        for day in period.days()
        for member in members(connection, day)
        if member.site == site
    ]
    patterns = [
        f"; {name} expects {expected_sites(profile)}"
        for name, profile in profiles.items()
        if not profile.expects(site, groups)
    ]
    return (
        f"no site {site} on {period}: it is in the topology, but none of its endpoints is"
        f" expected that day by {', '.join(reports)}{''.join(patterns)}"
    )
