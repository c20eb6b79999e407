"""The twelve months up to a month, of a site or a group: their lines, and the figure of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from sam_pipeline.spark_jobs.pages.drawing.lines import LineChart, line_chart
from sam_pipeline.spark_jobs.pages.navigation import Neighbours
from sam_pipeline.spark_jobs.pages.verdict import Cell, availability_cell, empty_cell
from sam_pipeline.spark_jobs.rules.figures import Targets
from sam_pipeline.spark_jobs.runs.months import MonthFigure, year_to


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
