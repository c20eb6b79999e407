"""Where a page of a month leads: to the other months of its report, and to other reports.

A link is drawn only to a page that is in the directory, or will be once all months are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from sam_pipeline.spark_jobs.pages.lines import LineChart, line_chart
from sam_pipeline.spark_jobs.pages.verdict import Cell, availability_cell, empty_cell
from sam_pipeline.spark_jobs.pages.writer import (
    CHANGES,
    INCIDENTS,
    INDEX,
    REVISIONS,
    TRENDS,
    group_page,
    month_path,
    site_page,
)
from sam_pipeline.spark_jobs.rules.figures import Targets
from sam_pipeline.spark_jobs.rules.levels import GROUP, SITE
from sam_pipeline.spark_jobs.runs.months import MonthFigure, ReportHistory, year_to

Key = tuple[str, date]
"""A report and the first day of a month."""


@dataclass(frozen=True)
class Beside:
    """Another month of the report, or the same month of another report, and its pages."""

    report: str
    month: date
    pages: Sequence[str]

    @property
    def name(self) -> str:
        return f"{self.month:%B %Y}"

    def has(self, page: str) -> bool:
        return page in self.pages

    def link(self, page: str) -> str:
        """The path of the same page there, else of the index of that month."""
        return f"{month_path(self.report, self.month)}/{page if self.has(page) else INDEX}"


@dataclass(frozen=True)
class Neighbours:
    """The months before and after a month, those of its year, and the other reports' month."""

    before: Beside | None = None
    after: Beside | None = None
    year: Sequence[Beside] = ()
    reports: Sequence[Beside] = ()

    @property
    def keys(self) -> set[Key]:
        """The months that link back to this one."""
        beside = (self.before, self.after, *self.reports)
        return {(other.report, other.month) for other in beside if other}

    def reports_with(self, page: str) -> list[Beside]:
        """The other reports that have this page in this month."""
        return [other for other in self.reports if other.has(page)]

    def link(self, month: date, page: str) -> str:
        """The path of a page in another month of the year; '' if it does not exist."""
        return next((b.link(page) for b in self.year if b.month == month and b.has(page)), "")


def neighbours(key: Key, pages: Mapping[Key, Sequence[str]]) -> Neighbours:
    """The neighbours of a month among all months with pages."""
    report, month = key
    months = [Beside(*other, pages[other]) for other in sorted(pages) if other[0] == report]
    year = year_to(month)
    return Neighbours(
        next((other for other in reversed(months) if other.month < month), None),
        next((other for other in months if other.month > month), None),
        [other for other in months if year.first <= other.month < month],
        [
            Beside(*other, pages[other])
            for other in sorted(pages)
            if other[1] == month and other[0] != report
        ],
    )


def pages_of_month(history: ReportHistory, month: date, is_sealed: bool) -> list[str]:
    """The pages that a month has, once it is written."""
    revisions = [REVISIONS] if is_sealed else []
    sites = [site_page(figure.names[0]) for figure in history.in_month(SITE, month)]
    types = {figure.names[0] for figure in history.in_month(GROUP, month)}
    return sorted(
        [
            INDEX,
            INCIDENTS,
            TRENDS,
            CHANGES,
            *revisions,
            *sites,
            *(group_page(kind) for kind in types),
        ]
    )


@dataclass(frozen=True)
class MonthOfYear:
    """A month; the link of its cell is the path of the same page in that month, if it exists."""

    month: date
    cell: Cell

    @property
    def name(self) -> str:
        return f"{self.month:%b}" if self.month.month > 1 else f"{self.month:%b %y}"


@dataclass(frozen=True)
class YearView:
    """The months from the first one with a figure on; the chart has a column for each."""

    months: Sequence[MonthOfYear]
    chart: LineChart


def year_view(
    figures: Sequence[MonthFigure], month: date, targets: Targets, beside: Neighbours, page: str
) -> YearView | None:
    """The year up to a month; None if no other month has a figure."""
    if len(figures) < 2:
        return None
    figure_of = {figure.month: figure.figure for figure in figures}
    columns = [
        period.first for period in year_to(month).months() if period.first >= figures[0].month
    ]
    values = [figure_of.get(column) for column in columns]
    months = []
    for column, value in zip(columns, values, strict=True):
        link = beside.link(column, page)
        cell = availability_cell(value, targets, 1, link) if value else empty_cell(False)
        months.append(MonthOfYear(column, cell))
    return YearView(months, line_chart(columns, values, targets.availability))
