"""The page of a site: its month at a glance, then each day with what was not OK and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain

from sam_pipeline.spark_jobs.explain.as_text import explain_command
from sam_pipeline.spark_jobs.explain.causes import Cause, Failure, causes
from sam_pipeline.spark_jobs.explain.explanation import arithmetic
from sam_pipeline.spark_jobs.explain.page_failures import Results, failures
from sam_pipeline.spark_jobs.pages.drawing import Stroke, status_strokes, told
from sam_pipeline.spark_jobs.pages.month import Day, Month, Total, clock, one_day, total_of
from sam_pipeline.spark_jobs.pages.page_marks import Marks
from sam_pipeline.spark_jobs.pages.verdict import MET, Cell, availability_cell
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start, moment
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, FUNCTION, SERVICE, SITE
from sam_pipeline.spark_jobs.rules.seconds import Seconds, short
from sam_pipeline.spark_jobs.rules.statuses import FOLDED, STATUSES
from sam_pipeline.spark_jobs.runs.published import DayFigure, Names, Run, Segment
from sam_pipeline.spark_jobs.runs.summary import added_up

_LEVELS = (SITE, FUNCTION, SERVICE, ENDPOINT)
# What of a month says why; and of a day more than anyone reads. `sam-report explain` has them all.
_MAX_CAUSES_OF_MONTH, _MAX_CAUSES_OF_DAY = 6, 20


@dataclass(frozen=True)
class Lane:
    """A line of a drawing."""

    level: str
    name: str
    availability: str
    shades: Sequence[Stroke]
    strokes: Sequence[Stroke]
    words: str


@dataclass(frozen=True)
class CauseRow:
    """Failures of one cause."""

    status: str
    count: int
    first: str
    last: str
    metric: str
    endpoint: str
    text: str
    message_id: str


@dataclass(frozen=True)
class Causes:
    """The first causes, and how many more there are."""

    rows: Sequence[CauseRow]
    more: int


@dataclass(frozen=True)
class DayView:
    """A day: a row of the month's table, and a part of the page."""

    day: Day
    cell: Cell
    reliability: str
    seconds: Seconds
    lanes: Sequence[Lane]
    causes: Causes
    notes: Sequence[str]
    arithmetic: Sequence[str]
    command: str

    @property
    def is_open(self) -> bool:
        """Whether the day is shown unfolded: someone will ask about it."""
        return self.cell.verdict is not MET


@dataclass(frozen=True)
class SiteView:
    """The page of a site; `statuses` are those that have a column."""

    month: Month
    site: str
    total: Total
    seconds: Seconds
    statuses: Sequence[str]
    causes: Causes
    days: Sequence[DayView]


def site_view(
    month: Month,
    figures: Sequence[DayFigure],
    segments: Mapping[date, Sequence[Segment]],
    results: Results,
) -> SiteView:
    """The page of a site, from the figures of its days and what made them."""
    [figure] = added_up(figures)
    seconds = figure.seconds or Seconds()
    run_of = {run.day: run for run in month.runs}
    failed = {day: list(failures(run_of[day], found, results)) for day, found in segments.items()}
    return SiteView(
        month,
        figure.names[0],
        total_of(figure, month.targets),
        seconds,
        [*FOLDED, *(STATUSES[len(FOLDED) :] if seconds.excluded else ())],
        _causes(chain.from_iterable(failed.values()), _MAX_CAUSES_OF_MONTH),
        [
            _day_view(
                month.report,
                each,
                run_of[each.day],
                segments.get(each.day, ()),
                failed.get(each.day, []),
            )
            for each in figures
        ],
    )


def _day_view(
    report: str, figure: DayFigure, run: Run, segments: Sequence[Segment], failed: Sequence[Failure]
) -> DayView:
    [site] = figure.names
    start = day_start(run.day)
    end = start + DAY_S if run.until is None else run.until
    marks = Marks(run.profile, run.downtimes, run.exclusions, start, end)
    things = _things(segments)
    lanes = [_lane(level, names, found, marks) for (level, names), found in things.items()]
    return DayView(
        Day(figure.day, clock(run.until)),
        availability_cell(one_day(figure), run.profile.targets, 2),
        short(figure.seconds.reliability),
        figure.seconds,
        lanes,
        _causes(failed, _MAX_CAUSES_OF_DAY),
        marks.notes(site, [names for level, names in things if level == ENDPOINT]),
        arithmetic(figure.seconds),
        explain_command(report, site, figure.day),
    )


def _things(segments: Iterable[Segment]) -> dict[tuple[str, Names], list[Segment]]:
    """The segments of each lane, from the site down to its endpoints."""
    found: dict[tuple[str, Names], list[Segment]] = {}
    for each in segments:
        if each.level in _LEVELS:
            found.setdefault((each.level, each.names), []).append(each)
    return dict(sorted(found.items(), key=lambda named: (_LEVELS.index(named[0][0]), named[0][1])))


def _lane(level: str, names: Names, segments: Sequence[Segment], marks: Marks) -> Lane:
    seconds = _seconds(segments)
    return Lane(
        level,
        " ".join(names[1:]) or names[0],
        short(seconds.availability),
        marks.shades(level, names),
        status_strokes(segments),
        told(segments),
    )


def _seconds(segments: Iterable[Segment]) -> Seconds:
    held: dict[str, int] = {}
    for each in segments:
        status = each.status.lower()
        held[status] = held.get(status, 0) + each.end - each.start
    return Seconds(**held)


def _causes(failed: Iterable[Failure], at_most: int) -> Causes:
    found = causes(failed)
    return Causes([_cause_row(each) for each in found[:at_most]], len(found[at_most:]))


def _cause_row(cause: Cause) -> CauseRow:
    of = cause.example.host_name if cause.endpoints == 1 else f"{cause.endpoints} endpoints"
    return CauseRow(
        cause.status,
        cause.count,
        _moment(cause.first),
        _moment(cause.last) if cause.last != cause.first else "",
        cause.metric_name,
        f"{cause.service_flavour} {of}",
        cause.example.text,
        cause.example.message_id,
    )


def _moment(second: int) -> str:
    return f"{moment(second):%m-%d %H:%M:%S}"
