"""The page of a site: its month at a glance, then each day with its failures and their causes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from sam_pipeline.spark_jobs.explain.causes import Cause, CauseList, causes_by_effect, merged
from sam_pipeline.spark_jobs.explain.explanation import (
    arithmetic,
    downtimes_of,
    exclusions_of,
    seconds_of,
)
from sam_pipeline.spark_jobs.explain.failures import failures
from sam_pipeline.spark_jobs.explain.phrases import downtime_text, exclusion_text, explain_command
from sam_pipeline.spark_jobs.explain.results import CountedResults, Results
from sam_pipeline.spark_jobs.explain.timelines import Timelines
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST
from sam_pipeline.spark_jobs.pages.drawing.timelines import (
    ANNOUNCED,
    COUNTS,
    EXCLUDED,
    Stroke,
    shade,
    spoken,
    status_strokes,
)
from sam_pipeline.spark_jobs.pages.month import Day, Month
from sam_pipeline.spark_jobs.pages.verdict import (
    MET,
    Cell,
    PeriodTotals,
    availability_cell,
    totals_of,
)
from sam_pipeline.spark_jobs.rules.figures import Targets, figure_of
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, GROUP, METRIC, SITE, WITH_FIGURES
from sam_pipeline.spark_jobs.rules.seconds import Seconds, short
from sam_pipeline.spark_jobs.rules.statuses import FOLDED, STATUSES
from sam_pipeline.spark_jobs.runs.published import DayFigure, Names, Run
from sam_pipeline.spark_jobs.runs.summary import added_up

# The most frequent causes of a month, and nearly all of a day; `sam-report explain` lists them all.
_MAX_CAUSES_OF_MONTH, _MAX_CAUSES_OF_DAY = 6, 20
_EFFECTS = {
    MONITORING_HOST: "its results do not count",
    METRIC: "this time counts as not known",
    GROUP: "the site is UNKNOWN, its services keep their statuses",
}


@dataclass(frozen=True)
class Lane:
    """The timeline of one thing; `spoken` is its text for screen readers."""

    level: str
    name: str
    availability: str
    shades: Sequence[Stroke]
    strokes: Sequence[Stroke]
    spoken: str


@dataclass(frozen=True)
class CauseTable:
    """The first causes of a class of failures, and the number of the others."""

    title: str
    causes: Sequence[Cause]
    more: int


@dataclass(frozen=True)
class DayView:
    """A day: a row in the table of the month, and a section of the page."""

    day: Day
    cell: Cell
    reliability: str
    seconds: Seconds
    lanes: Sequence[Lane]
    causes: Sequence[CauseTable]
    notes: Sequence[str]
    arithmetic: Sequence[str]
    command: str

    @property
    def is_open(self) -> bool:
        """Whether the section is shown unfolded: unless all targets were met."""
        return self.cell.verdict is not MET


@dataclass(frozen=True)
class SiteView:
    """The page of a site; `statuses` are those with a column."""

    site: str
    targets: Targets
    total: PeriodTotals
    seconds: Seconds
    statuses: Sequence[str]
    causes: Sequence[CauseTable]
    days: Sequence[DayView]


def site_view(
    month: Month,
    figures: Sequence[DayFigure],
    timelines: Mapping[date, Timelines],
    results: Results,
) -> SiteView:
    """The page of a site, from the figures of its days, their timelines and results."""
    figure = added_up(figures)
    seconds = figure.seconds or Seconds()
    run_of = {run.day: run for run in month.runs}
    targets = month.period_targets.of_site(figure.names[0])
    causes_of = {
        day: causes_by_effect(failures(of_day, CountedResults(run_of[day], results)))
        for day, of_day in timelines.items()
    }
    return SiteView(
        figure.names[0],
        targets,
        totals_of(figure, targets),
        seconds,
        [*FOLDED, *(STATUSES[len(FOLDED) :] if seconds.excluded else ())],
        _cause_tables(map(merged, zip(*causes_of.values(), strict=True)), _MAX_CAUSES_OF_MONTH),
        [
            _day_view(
                month.report,
                figure,
                run_of[figure.day],
                timelines.get(figure.day, Timelines((), run_of[figure.day].profile)),
                causes_of.get(figure.day, ()),
                targets,
            )
            for figure in figures
        ],
    )


def _day_view(
    report: str,
    figure: DayFigure,
    run: Run,
    timelines: Timelines,
    causes: Iterable[CauseList],
    targets: Targets,
) -> DayView:
    [site] = figure.names
    lanes = [
        Lane(
            level,
            " ".join(names[1:]) or names[0],
            short(seconds_of(segments).availability),
            list(_shades(run, level, names)),
            status_strokes(segments),
            spoken(segments),
        )
        for wanted in WITH_FIGURES
        for level, names in timelines.of_level(wanted)
        for segments in (timelines.of[level, names],)
    ]
    endpoints = [names for _, names in timelines.of_level(ENDPOINT)]
    notes = [
        f"{downtime_text(downtime)} ({'counts' if run.counts(downtime) else 'does not count'})"
        for downtime in downtimes_of(run, endpoints)
    ]
    notes += [
        f"{exclusion_text(exclusion)} ({_EFFECTS[exclusion.kind]})"
        for exclusion in exclusions_of(run, site, endpoints)
    ]
    return DayView(
        Day(figure.day, run.until),
        availability_cell(figure_of(figure.names, figure.seconds), targets, 2),
        short(figure.seconds.reliability),
        figure.seconds,
        lanes,
        _cause_tables(causes, _MAX_CAUSES_OF_DAY),
        notes,
        arithmetic(figure.seconds),
        " ".join(explain_command(report, site, figure.day)),
    )


def _shades(run: Run, level: str, names: Names) -> Iterator[Stroke]:
    """The shades of a lane: an endpoint has its own, a site those that apply to all of it."""
    if level == ENDPOINT:
        downtimes = downtimes_of(run, [names])
        exclusions = exclusions_of(run, names[0], [names])
        exclusions = [e for e in exclusions if e.kind != GROUP]
    elif level == SITE:
        downtimes = [
            downtime
            for downtime in run.downtimes
            if downtime.site == names[0] and not downtime.host_name and not downtime.service_flavour
        ]
        exclusions = [e for e in exclusions_of(run, names[0], ()) if e.kind == GROUP]
    else:
        return
    counting = [downtime for downtime in downtimes if run.counts(downtime)]
    others = [downtime for downtime in downtimes if not run.counts(downtime)]
    for kind, shaded in ((COUNTS, counting), (ANNOUNCED, others), (EXCLUDED, exclusions)):
        spans = [(span.start, span.end) for span in shaded]
        yield from shade(kind, spans, run.start, run.end)


def _cause_tables(cause_lists: Iterable[CauseList], at_most: int) -> list[CauseTable]:
    return [
        CauseTable(
            str(cause_list)[0].upper() + str(cause_list)[1:],
            cause_list.causes[:at_most],
            len(cause_list.causes[at_most:]),
        )
        for cause_list in cause_lists
        if cause_list.causes
    ]
