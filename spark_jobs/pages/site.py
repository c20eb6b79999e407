"""The page of a site: its month at a glance, the causes of what failed, then the bad days."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property
from typing import Any

from sam_pipeline.spark_jobs.explain.as_text import (
    announced_topic,
    downtime_lines,
    exclusion_text,
    explain_command,
)
from sam_pipeline.spark_jobs.explain.causes import (
    COSTLY,
    Cause,
    CauseList,
    Key,
    causes_by_effect,
    merged,
)
from sam_pipeline.spark_jobs.explain.explanation import SiteDay, arithmetic, explain_site
from sam_pipeline.spark_jobs.explain.results import ReadResults
from sam_pipeline.spark_jobs.explain.timelines import FINE, Timelines
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST
from sam_pipeline.spark_jobs.pages.lanes import ALL_DAY, DayLanes, Lane, day_lanes, ok_lane
from sam_pipeline.spark_jobs.pages.month import Day, Month
from sam_pipeline.spark_jobs.pages.verdict import (
    LEGEND,
    MET,
    Cell,
    Verdict,
    availability_cell,
    totals_of,
)
from sam_pipeline.spark_jobs.rules.days import periods
from sam_pipeline.spark_jobs.rules.figures import figure_of
from sam_pipeline.spark_jobs.rules.levels import METRIC, SITE
from sam_pipeline.spark_jobs.rules.seconds import Seconds, short
from sam_pipeline.spark_jobs.rules.statuses import FOLDED, STATUSES
from sam_pipeline.spark_jobs.runs.published import DayFigure
from sam_pipeline.spark_jobs.runs.summary import added_up

# The most frequent causes of a month, and nearly all of a day; `sam-report explain` lists them all.
_MAX_CAUSES_OF_MONTH, _MAX_CAUSES_OF_DAY = 8, 20
_EFFECTS = {
    MONITORING_HOST: "its results do not count",
    METRIC: "this time counts as not known",
    SITE: "the site is UNKNOWN, its services keep their statuses",
}


@dataclass(frozen=True)
class DaySpan:
    """Consecutive days of a month."""

    first: date
    last: date

    def __str__(self) -> str:
        if self.first == self.last:
            return f"{self.first.day} {self.first:%B}"
        return f"{self.first.day} to {self.last.day} {self.last:%B}"

    @property
    def days(self) -> int:
        return (self.last - self.first).days + 1


@dataclass(frozen=True)
class CauseTable:
    """The first causes of a class of failures with their days, and the others."""

    title: str
    costs: bool
    rows: Sequence[tuple[Cause, Sequence[DaySpan]]]
    more: Sequence[tuple[Cause, Sequence[DaySpan]]]


@dataclass(frozen=True)
class DaySection:
    """The section of a day on which not everything was OK."""

    causes: Sequence[CauseTable]
    notes: Sequence[str]
    lanes: DayLanes
    arithmetic: Sequence[str]
    command: str


@dataclass(frozen=True)
class DayView:
    """A day: a row in the table of the month, and, unless all was OK, a section of the page.

    `topic` is what the day is about in a few words; days with the same topic are folded into one.
    A day that looks the `same_as` a later one of these is not drawn again.
    """

    day: Day
    cell: Cell
    seconds: Seconds
    lane: Lane
    topic: str
    section: DaySection | None
    same_as: date | None = None

    @cached_property
    def looks(self) -> Sequence[object]:
        """What the section shows, if the site had one status all day and no failing result."""
        section = self.section
        if section is None or [stroke.d for stroke in self.lane.strokes] != [ALL_DAY]:
            return []
        causes = [cause for table in section.causes for cause, _ in (*table.rows, *table.more)]
        if any(failure.measured for cause in causes for failure in cause.failures):
            return []
        lanes = [
            (lane.level, lane.name, lane.strokes, lane.shades)
            for drawn in (*section.lanes.lanes, *section.lanes.announced)
            for lane in (drawn, *drawn.metrics)
        ]
        return [self.cell, lanes, section.notes, section.lanes.ok_endpoints]

    @property
    def is_bad(self) -> bool:
        return self.cell.verdict is not MET


@dataclass(frozen=True)
class Spell:
    """Consecutive days with one topic; those without a section are not among `days`."""

    span: DaySpan
    topic: str
    verdict: Verdict
    availability: str
    days: Sequence[DayView]
    is_open: bool


def explained_days(
    month: Month, site: str, timelines: Mapping[date, Timelines], results: ReadResults
) -> dict[date, SiteDay]:
    """The days on which a site was not OK all day, or on which something was announced for it.

    To explain a day takes time, and most days of most sites were OK.
    """
    days = {}
    for run in month.runs:
        of_day = timelines.get(run.day)
        if of_day and (
            any(segment.status != FINE for segments in of_day.of.values() for segment in segments)
            or any(
                downtime.site in ("", site) or any(site == at for at, *_ in downtime.by_grid_site)
                for downtime in run.downtimes
            )
            or run.exclusions
        ):
            announcers = month.announcers
            days[run.day] = explain_site(month.report, site, run, of_day, results, announcers)
    return days


def site_view(
    month: Month,
    figures: Sequence[DayFigure],
    site_days: Mapping[date, SiteDay],
    since: int = 0,
) -> dict[str, Any]:
    """The values of the page of a site, from its figures and explained days.

    All results from `since` (epoch s) on were read; failures before it are counted by their
    stretches of time. The spells begin with the newest; `open_day` is shown unfolded.
    """
    figure = added_up(figures)
    [site] = figure.names
    seconds = figure.seconds or Seconds()
    targets = month.period_targets.of_site(site)
    run_of = {run.day: run for run in month.runs}
    causes_of = {day: causes_by_effect(of_day.failures) for day, of_day in site_days.items()}
    days = []
    for of_day in figures:
        day, run = of_day.day, run_of[of_day.day]
        cell = availability_cell(figure_of(of_day.names, of_day.seconds), targets, 2)
        site_day, causes = site_days.get(day), causes_of.get(day, ())
        section = _section(site_day, causes, of_day.seconds, len(site_days)) if site_day else None
        lanes = section.lanes.lanes if section else [ok_lane(site, run)]
        topic = _topic(cell, site_day, causes)
        days.append(DayView(Day(day, run.until), cell, of_day.seconds, lanes[0], topic, section))
    bad_days = [view.day.day for view in days if view.is_bad and view.section]
    open_day = bad_days[-1] if bad_days else None
    return {
        "site": site,
        "targets": targets,
        "total": totals_of(figure, targets),
        "seconds": seconds,
        "statuses": [*FOLDED, *(STATUSES[len(FOLDED) :] if seconds.excluded else ())],
        "causes": [
            _cause_table(of_month, _MAX_CAUSES_OF_MONTH, days_of)
            for of_month, days_of in merged(causes_of)
            if of_month.causes
        ],
        "days": days,
        "expected": day_spans(view.day.day for view in days),
        "spells": list(_spells(days, open_day))[::-1],
        "open_day": open_day,
        "since": since if since > min(run.reads_from for run in month.runs) else 0,
    }


def _cause_table(
    found: CauseList, at_most: int, days_of: Mapping[Key, Sequence[date]]
) -> CauseTable:
    title = str(found)
    rows = [(cause, day_spans(days_of.get(cause.key, ()))) for cause in found.causes]
    title = title[0].upper() + title[1:]
    return CauseTable(title, found.title == COSTLY, rows[:at_most], rows[at_most:])


def _section(
    site_day: SiteDay, causes: Sequence[CauseList], seconds: Seconds, sections: int
) -> DaySection | None:
    """The section of one of at most `sections` days, if it has anything to show."""
    run = site_day.run
    notes = [
        *downtime_lines(site_day),
        *(f"{exclusion_text(e)} ({_EFFECTS[e.kind]})" for e in site_day.exclusions),
    ]
    if not (notes or site_day.failures or any(thing.reasons for thing in site_day.things)):
        return None
    tables = [_cause_table(found, _MAX_CAUSES_OF_DAY, {}) for found in causes if found.causes]
    command = " ".join(explain_command(site_day.report, site_day.site, run.day))
    return DaySection(tables, notes, day_lanes(site_day, sections), arithmetic(seconds), command)


def _topic(cell: Cell, site_day: SiteDay | None, causes: Sequence[CauseList]) -> str:
    """The worst cause that cost availability, or else what was announced, or the verdict."""
    if cell.verdict is MET or site_day is None:
        return cell.verdict.meaning
    for cause in (cause for cause_list in causes[:1] for cause in cause_list.causes[:1]):
        text = re.sub(rf"^{cause.status}( -|:)? ", "", cause.text) or "(no text)"
        return f"{text}, {cause.metric_name}"
    return announced_topic(site_day) or cell.verdict.meaning


def day_spans(days: Iterable[date]) -> list[DaySpan]:
    """The days, in order, as spans without gaps."""
    return [DaySpan(period.first, period.last) for period in periods(days)]


def _spells(days: Sequence[DayView], open_day: date | None) -> Iterator[Spell]:
    """The days with a section, those in a row with one topic together."""
    rows: list[list[DayView]] = []
    for view in days:
        day_before = view.day.day - timedelta(days=1)
        if rows and (rows[-1][-1].day.day, rows[-1][-1].topic) == (day_before, view.topic):
            rows[-1].append(view)
        else:
            rows.append([view])
    for row in rows:
        known = [view.seconds.availability for view in row]
        values = sorted({short(value) for value in known if value is not None}, key=float)
        shown: list[DayView] = []
        for view in [view for view in row if view.section][::-1]:
            drawn = next((other for other in shown[::-1] if not other.same_as), view)
            is_same = drawn is not view and view.looks and view.looks == drawn.looks
            shown.append(replace(view, same_as=drawn.day.day) if is_same else view)
        if shown:
            yield Spell(
                DaySpan(row[0].day.day, row[-1].day.day),
                row[0].topic,
                min((view.cell.verdict for view in row), key=LEGEND.index),
                " to ".join(dict.fromkeys((values[0], values[-1]))) if values else "",
                shown,
                any(view.day.day == open_day for view in row),
            )
