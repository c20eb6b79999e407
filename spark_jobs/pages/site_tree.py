"""`sam-report site`: an offline HTML site from stored figures, without external sources.

    index.html                       every report and month
    REPORT/2026-11/index.html        sites by day
    REPORT/2026-11/SITE.html#DAY     a site, with the explanation of each day
    REPORT/2026-11/groups/TYPE.html  federations, regions, VOs
    REPORT/2026-11/trends.html       the most status changes
    REPORT/2026-11/incidents.html    how often sites failed, for how long, and why
    REPORT/2026-11/changes.html      figures that a later run changed

The period only chooses the months: the pages of a month always show all of it, and depend only on
what is published for it, so links stay valid. One site is in memory at a time. Pages that link to
others are written after them.
"""

from __future__ import annotations

from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path

from sqlalchemy import Connection

from sam_pipeline.spark_jobs.explain.failures import failing_instances
from sam_pipeline.spark_jobs.explain.incidents.figures import ReportIncidents
from sam_pipeline.spark_jobs.explain.incidents.incident import Incident, in_order
from sam_pipeline.spark_jobs.explain.incidents.reader import site_incidents
from sam_pipeline.spark_jobs.explain.results import read_results
from sam_pipeline.spark_jobs.explain.timelines import Timelines
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST
from sam_pipeline.spark_jobs.pages.changes import changes_view
from sam_pipeline.spark_jobs.pages.groups import group_views
from sam_pipeline.spark_jobs.pages.incidents import incidents_view
from sam_pipeline.spark_jobs.pages.month import Month, by_site, month_view
from sam_pipeline.spark_jobs.pages.site import site_view
from sam_pipeline.spark_jobs.pages.start import MonthRow, ReportView, month_row
from sam_pipeline.spark_jobs.pages.trends import trends_view
from sam_pipeline.spark_jobs.pages.writer import (
    CHANGES,
    INCIDENTS,
    INDEX,
    TRENDS,
    PageFiles,
    month_path,
    site_page,
)
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, SITE
from sam_pipeline.spark_jobs.runs.published import (
    day_figures,
    day_members,
    published_reports,
    published_runs,
    timeline,
)
from sam_pipeline.spark_jobs.runs.seal import seals
from sam_pipeline.spark_jobs.runs.targets import period_targets

# A site that was down all month has more failing results than anyone would read.
_MAX_RESULTS = 50_000
_day = attrgetter("day")


def write_site(connection: Connection, report: str | None, period: Period, out: Path) -> list[str]:
    """Write the pages of the months in which the period lies into `out`.

    Returns:
        The paths of the pages there, the start page first.
    Raises:
        CannotMakeFile, CannotWriteFile: see output_file.
    """
    files = PageFiles(out)
    period = period.in_whole_months()
    sealed = {
        (seal.report, seal.month): f"{seal.sealed_at:%Y-%m-%d} by {seal.who}"
        for seal in seals(connection)
    }
    reports = []
    for name in published_reports(connection, report, period):
        rows = []
        for whole in period.months():
            if runs := published_runs(connection, name, whole):
                by = sealed.get((name, f"{whole.first:%Y-%m}"), "")
                targets = period_targets(connection, name, whole)
                month = Month(name, whole, month_path(name, whole.first), runs, by, targets)
                rows.append(_write_month(connection, month, files))
        reports.append(ReportView(name, rows[::-1]))
    files.write(INDEX, "start.html", reports=reports, period=period)
    return [INDEX, *files.written[:-1]]


def _write_month(connection: Connection, month: Month, files: PageFiles) -> MonthRow:
    profiles = {run.day: run.profile for run in month.runs}
    figures = by_site(day_figures(connection, month.report, SITE, month.period))
    incidents: list[Incident] = []
    for site, days in figures.items():
        segments = timeline(connection, month.report, month.period, site=site, ok_metrics=False)
        timelines = {
            day: Timelines(of_day, profiles[day]) for day, of_day in groupby(segments, _day)
        }
        failing = {
            instance for of_day in timelines.values() for instance in failing_instances(of_day)
        }
        for run in month.runs:
            if run.day in timelines and any(e.kind == MONITORING_HOST for e in run.exclusions):
                # Any of the site's results may be from the excluded host.
                failing |= {
                    (flavour, host, metric)
                    for _, (_, flavour, host) in timelines[run.day].of_level(ENDPOINT)
                    for metric in run.profile.metrics_of(flavour)
                }
        results = read_results(connection, month.runs, failing, with_ok=False, at_most=_MAX_RESULTS)
        incidents += site_incidents(site, timelines, results, month.runs)
        view = site_view(month, days, timelines, results)
        files.write(f"{month.path}/{site_page(site)}", "site.html", view=view, month=month)
    members = list(day_members(connection, month.report, month.period))
    groups = list(group_views(month.period_targets, month.period, members, figures))
    index = month_view(month, figures, groups)
    for of_type in groups:
        files.write(f"{month.path}/{of_type.link}", "groups.html", view=of_type, month=month)
    trends = trends_view(connection, month)
    files.write(f"{month.path}/{TRENDS}", "trends.html", view=trends, month=month)
    days_of_sites = list(chain.from_iterable(figures.values()))
    found = ReportIncidents(
        month.report, month.period, month.runs, in_order(incidents), days_of_sites, members
    )
    of_month = incidents_view(found)
    files.write(f"{month.path}/{INCIDENTS}", "incidents.html", view=of_month, month=month)
    changes = changes_view(connection, month)
    files.write(f"{month.path}/{CHANGES}", "changes.html", view=changes, month=month)
    files.write(f"{month.path}/{INDEX}", "month.html", view=index, month=month)
    return month_row(index)
