"""The page of a month: the sites that miss a target, then all others, with a cell for each day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property

from sam_pipeline.spark_jobs.inputs.announced import Downtime
from sam_pipeline.spark_jobs.pages.drawing.years import YearView, year_view
from sam_pipeline.spark_jobs.pages.groups import GroupsView
from sam_pipeline.spark_jobs.pages.navigation import Neighbours
from sam_pipeline.spark_jobs.pages.verdict import (
    OF_FIGURES,
    Cell,
    PeriodTotals,
    Verdict,
    availability_cell,
    empty_cell,
    totals_of,
    worst_first,
)
from sam_pipeline.spark_jobs.pages.writer import site_page
from sam_pipeline.spark_jobs.profiles.in_words import WordsOfDays, own_targets, words_by_day
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.figures import Targets, figure_of
from sam_pipeline.spark_jobs.runs.months import ReportHistory
from sam_pipeline.spark_jobs.runs.published import DayFigure, Names, PublishedRun, until_of
from sam_pipeline.spark_jobs.runs.summary import PeriodTargets, added_up


@dataclass(frozen=True)
class Day:
    """A column of the matrix; `until` is set if the day was open."""

    day: date
    until: int | None

    @property
    def weekday(self) -> str:
        return f"{self.day:%a}"

    @property
    def number(self) -> str:
        return f"{self.day:%d}"


@dataclass(frozen=True)
class SiteRow:
    """A site in the matrix: the period's figures, then a cell for each day.

    The filter of the table looks for its name and those of its `groups`.
    """

    site: str
    link: str
    groups: Sequence[str]
    total: PeriodTotals
    days: Sequence[Cell]

    @property
    def verdict(self) -> Verdict:
        return self.total.availability.verdict


@dataclass(frozen=True)
class Month:
    """A report over a whole month; all its pages need this.

    `in_bad_row` are the sites that were below a target in this month and in the two before.
    """

    report: str
    period: Period
    path: str
    runs: Sequence[PublishedRun]
    sealed: str
    period_targets: PeriodTargets
    beside: Neighbours = field(default_factory=Neighbours)
    history: ReportHistory = field(default_factory=lambda: ReportHistory({}))
    contacts: Mapping[str, str] = field(default_factory=dict)
    in_bad_row: Collection[str] = ()
    announcers: Mapping[Downtime, str] = field(default_factory=dict)

    @property
    def targets(self) -> Targets:
        """The targets of all sites and groups that have none of their own."""
        return self.period_targets.everywhere

    @property
    def own_targets(self) -> list[tuple[str, str]]:
        """The targets that differ for some groups and sites."""
        return list(own_targets(self.period_targets.profile))

    @cached_property
    def what_counts(self) -> list[WordsOfDays]:
        """What the report counts, by the profiles that its runs kept."""
        return words_by_day((run.day, run.profile) for run in self.runs)

    @property
    def name(self) -> str:
        return f"{self.period.first:%B %Y}"

    @property
    def days(self) -> list[Day]:
        until = {run.day: run.until for run in self.runs}
        return [Day(day, until.get(day)) for day in self.period.days()]

    @property
    def computed_at(self) -> str:
        """When the newest run finished (UTC): the date of the figures."""
        newest = max((run.finished_at for run in self.runs), default="")
        return newest.replace("T", " ")[:16]

    @property
    def until(self) -> int | None:
        """The end of the data (epoch s), if a day was open."""
        return until_of(self.runs)

    def year_of(self, level: str, names: Names, page: str) -> YearView | None:
        """The year of a site or group up to the month, and where its `page` is in each month."""
        figures = self.history.year(level, names, self.period.first)
        targets = self.period_targets.of(level, names)
        return year_view(figures, self.period.first, targets, self.beside, page)


@dataclass(frozen=True)
class MonthView:
    """The matrix: the sites that `missed` a target and those that `met` them all, worst first.

    `verdicts` are the numbers of sites with each verdict.
    """

    month: Month
    missed: Sequence[SiteRow]
    met: Sequence[SiteRow]
    verdicts: Sequence[tuple[Verdict, int]]
    groups: Sequence[GroupsView]

    @property
    def sites(self) -> int:
        return len(self.missed) + len(self.met)


def month_view(
    month: Month, figures: Mapping[str, Sequence[DayFigure]], groups: Sequence[GroupsView]
) -> MonthView:
    """The matrix of a month, from the figures of each site's days."""
    totals = {site: added_up(days) for site, days in figures.items()}
    targets_of = {site: month.period_targets.of_site(site) for site in figures}
    computed = {run.day for run in month.runs}
    groups_of: dict[str, list[str]] = {}
    for of_type in groups:
        for group in (*of_type.missed, *of_type.met):
            for member in group.members:
                groups_of.setdefault(member.site, []).append(group.name)
    rows = {}
    for site in sorted(figures, key=lambda site: worst_first(totals[site], targets_of[site])):
        link, figure_on = site_page(site), {figure.day: figure for figure in figures[site]}
        cells = []
        for day in month.period.days():
            if figure := figure_on.get(day):
                # A day that was OK all the time needs no explanation, and gets no link.
                all_ok = figure.seconds.ok == figure.seconds.total
                day_link = "" if all_ok else f"{link}#{day}"
                shown = figure_of(figure.names, figure.seconds)
                cells.append(availability_cell(shown, targets_of[site], 0, day_link))
            else:
                cells.append(empty_cell(day in computed))
        total = totals_of(totals[site], targets_of[site])
        rows[site] = SiteRow(site, link, groups_of.get(site, ()), total, cells)
    missed = {site for site, total in totals.items() if total.misses(targets_of[site])}
    counts = Counter(row.verdict for row in rows.values())
    return MonthView(
        month,
        [row for site, row in rows.items() if site in missed],
        [row for site, row in rows.items() if site not in missed],
        [(kind, counts[kind]) for kind in OF_FIGURES],
        groups,
    )


def by_site(figures: Iterable[DayFigure]) -> dict[str, list[DayFigure]]:
    """The days of each site, sorted by site."""
    days: dict[str, list[DayFigure]] = {}
    for figure in figures:
        days.setdefault(figure.names[0], []).append(figure)
    return dict(sorted(days.items()))
