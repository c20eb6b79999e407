"""`sam-report site`: an offline HTML site from stored figures. No scripts, no outside sources.

    index.html                       every report and month
    REPORT/2026-11/index.html        sites by day
    REPORT/2026-11/SITE.html#DAY     a site, and what made a day of it
    REPORT/2026-11/groups/KIND.html  federations, regions, VOs
    REPORT/2026-11/trends.html       what changed its status most often
    REPORT/2026-11/changes.html      figures that a later run changed

A month's pages follow from what is published of it within the asked period, so links stay valid.
A site is read, written and forgotten before the next; the pages that point to others come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection

from sam_pipeline.spark_jobs.explain.page_failures import failing_instances
from sam_pipeline.spark_jobs.explain.page_reading import seals, site_results, site_segments
from sam_pipeline.spark_jobs.pages.changes import changes_view
from sam_pipeline.spark_jobs.pages.groups import group_totals, group_views
from sam_pipeline.spark_jobs.pages.month import Month, by_site, month_view
from sam_pipeline.spark_jobs.pages.page_links import CHANGES, INDEX, TRENDS, month_path, site_page
from sam_pipeline.spark_jobs.pages.site import site_view
from sam_pipeline.spark_jobs.pages.start import MonthRow, ReportView, month_row
from sam_pipeline.spark_jobs.pages.trends import trends_view
from sam_pipeline.spark_jobs.pages.writer import PageFiles
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, SITE
from sam_pipeline.spark_jobs.runs.published import (
    DayFigure,
    day_figures,
    day_members,
    published_reports,
    published_runs,
    trends,
)


def write_site(connection: Connection, report: str | None, period: Period, out: Path) -> list[str]:
    """Write the pages into `out`; their paths there, the start page first.

    Raises:
        CannotMakeFile, CannotWriteFile: see output_file.
    """
    files = PageFiles(out)
    reports = []
    for name in published_reports(connection, report, period):
        months = [
            _write_month(connection, month, files) for month in _months(connection, name, period)
        ]
        reports.append(ReportView(name, months[::-1]))
    files.write(INDEX, "start.html", reports=reports, period=period)
    return [INDEX, *files.written[:-1]]


def _months(connection: Connection, report: str, period: Period) -> list[Month]:
    """The report's months with published days, oldest first."""
    sealed = seals(connection, report)
    found = [(month, published_runs(connection, report, month)) for month in period.months()]
    return [
        Month(
            report,
            month,
            month_path(report, month.first),
            runs,
            sealed.get(f"{month.first:%Y-%m}", ""),
        )
        for month, runs in found
        if runs
    ]


def _write_month(connection: Connection, month: Month, files: PageFiles) -> MonthRow:
    figures = by_site(list(day_figures(connection, month.report, SITE, month.period)))
    for site, days in figures.items():
        _write_site_page(connection, month, site, days, files)
    members = list(day_members(connection, month.report, month.period))
    totals = group_totals(members, figures)
    view = month_view(month, figures, totals)
    for groups, kind in zip(group_views(month, totals, members, figures), view.kinds, strict=True):
        files.write(f"{month.path}/{kind.link}", "groups.html", view=groups, month=month)
    trend = trends_view(trends(connection, month.report, ENDPOINT, month.period))
    files.write(f"{month.path}/{TRENDS}", "trends.html", view=trend, month=month)
    changes = changes_view(connection, month)
    files.write(f"{month.path}/{CHANGES}", "changes.html", view=changes, month=month)
    files.write(f"{month.path}/{INDEX}", "month.html", view=view, month=month)
    return month_row(view)


def _write_site_page(
    connection: Connection, month: Month, site: str, days: Sequence[DayFigure], files: PageFiles
) -> None:
    segments = site_segments(connection, month.report, month.period, site)
    failing = {each for found in segments.values() for each in failing_instances(found)}
    results = site_results(connection, month.runs, month.period, failing) if failing else {}
    view = site_view(month, days, segments, results)
    files.write(f"{month.path}/{site_page(site)}", "site.html", view=view, month=month)
