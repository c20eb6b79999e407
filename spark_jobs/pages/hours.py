"""The pages of single days: all sites over 24 hours, to see what failed at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction

from sam_pipeline.spark_jobs.pages.lanes import KINDS
from sam_pipeline.spark_jobs.pages.month import Month
from sam_pipeline.spark_jobs.pages.site import DayView
from sam_pipeline.spark_jobs.pages.verdict import OF_FIGURES, Cell
from sam_pipeline.spark_jobs.pages.writer import day_page
from sam_pipeline.spark_jobs.rules.statuses import OK, STATUSES
from sam_pipeline.spark_jobs.runs.published import DayFigure

_FINE = {KINDS[STATUSES[OK]]}


@dataclass(frozen=True)
class HourRow:
    """A site that was not OK all day: its figure, and its lane as on its own page."""

    day: date
    site: str
    cell: Cell
    availability: Fraction | None
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


def hour_rows(site: str, days: Iterable[DayView]) -> list[HourRow]:
    """The rows of a site, from the days of its page."""
    return [
        HourRow(view.day.day, site, view.cell, view.seconds.availability, view.lane.svg)
        for view in days
        if {stroke.kind for stroke in view.lane.strokes} != _FINE
    ]


def hours_pages(
    month: Month, figures: Mapping[str, Sequence[DayFigure]], rows: Iterable[HourRow]
) -> Iterator[tuple[str, HoursView]]:
    """The path of each day's page, relative to the index of the month, and its view."""
    rows_on: dict[date, list[HourRow]] = {}
    for row in rows:
        rows_on.setdefault(row.day, []).append(row)
    sites_on: dict[date, list[str]] = {}
    for site, of_site in figures.items():
        for figure in of_site:
            sites_on.setdefault(figure.day, []).append(site)

    def worst_first(row: HourRow) -> tuple[int, Fraction, str]:
        return OF_FIGURES.index(row.cell.verdict), row.availability or Fraction(0), row.site

    days = [run.day for run in month.runs]
    for run, before, after in zip(month.runs, [None, *days], [*days[1:], None], strict=False):
        of_day = sorted(rows_on.get(run.day, ()), key=worst_first)
        listed = {row.site for row in of_day}
        ok_sites = [site for site in sites_on.get(run.day, ()) if site not in listed]
        yield day_page(run.day), HoursView(run.day, run.until, of_day, ok_sites, before, after)
