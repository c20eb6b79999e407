"""The performance data of a site over a month: a small plot for each label of each metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from sam_pipeline.spark_jobs.inputs.expected import Endpoint
from sam_pipeline.spark_jobs.inputs.performance import (
    DayRead,
    DayValues,
    Measure,
    MonthPerformance,
    read_performance,
)
from sam_pipeline.spark_jobs.pages.drawing.plots import Plot, plot, value_text
from sam_pipeline.spark_jobs.pages.month import Month
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT
from sam_pipeline.spark_jobs.runs.published import totals

# Plugins may have dozens of labels, one for each disk or queue.
MAX_PLOTS = 24


@dataclass(frozen=True)
class MeasurePlot:
    """A measure drawn over the month; the smallest and the largest value are those of any day."""

    measure: Measure
    plot: Plot
    least: str
    most: str


@dataclass(frozen=True)
class PerformanceView:
    """The first plots of a site, and the number of measures without one."""

    plots: Sequence[MeasurePlot]
    more: int
    one_in: int


def month_performance(connection: Connection, month: Month) -> MonthPerformance:
    """The performance data of all sites, as far as the runs of the month have read it."""
    endpoints = [
        Endpoint(*figure.names)
        for figure in totals(connection, month.report, ENDPOINT, month.period)
    ]
    days = [DayRead(run.day, run.end, run.newest_result, run.exclusions) for run in month.runs]
    return read_performance(connection, month.runs[-1].profile, endpoints, days)


def performance_view(performance: MonthPerformance, site: str, period: Period) -> PerformanceView:
    measures: Mapping[Measure, Sequence[DayValues]] = performance.of_site.get(site, {})
    plots = [
        MeasurePlot(
            measure,
            plot(days, period, measure.unit),
            f"{value_text(min(day.least for day in days))} {measure.unit}".rstrip(),
            f"{value_text(max(day.most for day in days))} {measure.unit}".rstrip(),
        )
        for measure, days in list(measures.items())[:MAX_PLOTS]
    ]
    return PerformanceView(plots, len(measures) - len(plots), performance.one_in)
