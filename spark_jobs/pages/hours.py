"""The pages of single days: all sites over 24 hours, to see what failed at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from sqlalchemy import Connection

from sam_pipeline.spark_jobs.explain.as_text import Stretch
from sam_pipeline.spark_jobs.explain.timelines import FINE
from sam_pipeline.spark_jobs.pages.lanes import spoken, spots, status_strokes, svg
from sam_pipeline.spark_jobs.pages.month import Month
from sam_pipeline.spark_jobs.pages.verdict import Cell, availability_cell, worst_first
from sam_pipeline.spark_jobs.pages.writer import day_page, site_page
from sam_pipeline.spark_jobs.rules.figures import figure_of
from sam_pipeline.spark_jobs.rules.levels import SITE
from sam_pipeline.spark_jobs.runs.published import DayFigure, timeline


@dataclass(frozen=True)
class HourRow:
    """A site that was not OK all day, and its timeline as SVG."""

    site: str
    cell: Cell
    lane: str


@dataclass(frozen=True)
class HoursView:
    """A day: the sites that were not OK all the time, the worst first, and the others' names.

    `until` is the end of the data (epoch s) if the day was open; `before` and `after` are the days
    of the month that have pages.
    """

    day: date
    until: int | None
    rows: Sequence[HourRow]
    ok_sites: Sequence[str]
    before: date | None
    after: date | None


def hours_pages(
    connection: Connection, month: Month, figures: Mapping[str, Sequence[DayFigure]]
) -> Iterator[tuple[str, HoursView]]:
    """The path of each day's page, relative to the index of the month, and its view."""
    stretches: dict[tuple[date, str], list[Stretch]] = {}
    for segment in timeline(connection, month.report, month.period, level=SITE):
        stretch = Stretch(segment.start, segment.end, segment.status, "")
        stretches.setdefault((segment.day, segment.names[0]), []).append(stretch)
    figures_on: dict[date, list[DayFigure]] = {}
    for of_site in figures.values():
        for figure in of_site:
            figures_on.setdefault(figure.day, []).append(figure)
    days = [run.day for run in month.runs]
    for run, before, after in zip(month.runs, [None, *days], [*days[1:], None], strict=False):
        ranked = []
        ok_sites = []
        for figure in figures_on.get(run.day, ()):
            [site] = figure.names
            of_day = stretches.get((run.day, site), [])
            if all(stretch.status == FINE for stretch in of_day):
                ok_sites.append(site)
                continue
            shown, targets = (
                figure_of(figure.names, figure.seconds),
                month.period_targets.of_site(site),
            )
            cell = availability_cell(shown, targets, 2, f"../{site_page(site)}#{run.day}")
            lane = svg(spoken(of_day), status_strokes(of_day), spots(of_day))
            ranked.append((worst_first(shown, targets), HourRow(site, cell, lane)))
        rows = [row for _, row in sorted(ranked, key=lambda item: item[0])]
        yield day_page(run.day), HoursView(run.day, run.until, rows, ok_sites, before, after)
