"""The page of a report's month: the sites that miss a target, then every site on every day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from sam_pipeline.spark_jobs.pages.verdict import (
    LEGEND,
    NOT_COMPUTED,
    Cell,
    Verdict,
    availability_cell,
    verdict,
)
from sam_pipeline.spark_jobs.pages.writer import group_page, site_page
from sam_pipeline.spark_jobs.profiles.profile import Targets
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.seconds import Seconds, percent, short
from sam_pipeline.spark_jobs.runs.published import DayFigure, Run, until_of
from sam_pipeline.spark_jobs.runs.summary import Figure, added_up, figure_of


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
class Value:
    """A percentage that may miss its target."""

    text: str
    misses: bool = False


@dataclass(frozen=True)
class PeriodTotals:
    """The figures of a site over the whole period, each compared with its target."""

    availability: Cell
    reliability: Value
    not_known: Value
    unknown: str
    missing: str
    misses: Sequence[str]


@dataclass(frozen=True)
class SiteRow:
    """A site in the matrix: the period's figures, then a cell for each day."""

    site: str
    link: str
    total: PeriodTotals
    days: Sequence[Cell]


@dataclass(frozen=True)
class GroupKind:
    """A kind of groups, as the page of the month lists it."""

    name: str
    link: str
    groups: int
    missing: int


@dataclass(frozen=True)
class Month:
    """The data that all pages of a report's month share."""

    report: str
    period: Period
    path: str
    runs: Sequence[Run]
    sealed: str

    @property
    def targets(self) -> Targets:
        """The targets of the newest day's profile."""
        return self.runs[-1].profile.targets

    @property
    def name(self) -> str:
        return f"{self.period.first:%B %Y}"

    @property
    def days(self) -> list[Day]:
        until = {run.day: run.until for run in self.runs}
        return [Day(day, until.get(day)) for day in self.period.days()]

    @property
    def until(self) -> int | None:
        """The end of the data if the newest day was open (epoch s)."""
        return until_of(self.runs)


@dataclass(frozen=True)
class MonthView:
    """The matrix: `missing` are the rows of sites that miss a target, `fine` all others."""

    month: Month
    missing: Sequence[SiteRow]
    fine: Sequence[SiteRow]
    counts: Sequence[tuple[Verdict, int]]
    kinds: Sequence[GroupKind]

    @property
    def sites(self) -> int:
        return len(self.missing) + len(self.fine)


def month_view(
    month: Month, figures: Mapping[str, Sequence[DayFigure]], groups: Sequence[Figure]
) -> MonthView:
    """The matrix of a month, from the figures of each site's days."""
    targets = month.targets
    totals = {site: next(added_up(days)) for site, days in figures.items()}
    rows = {}
    for site, days in figures.items():
        link, figure_on = site_page(site), {figure.day: figure for figure in days}
        cells = []
        for day in month.period.days():
            figure = figure_on.get(day)
            shown = figure_of(figure.names, figure.seconds) if figure else None
            # A day that was OK all the time needs no explanation, and gets no link.
            all_ok = figure is None or figure.seconds.ok == figure.seconds.total
            day_link = "" if all_ok else f"{link}#{day}"
            cells.append(availability_cell(shown, targets, 0, day_link))
        rows[site] = SiteRow(site, link, totals_of(totals[site], targets), cells)
    missing = [site for site, total in totals.items() if total.misses(targets)]
    availability = {site: total.availability for site, total in totals.items()}
    # Sites without a figure come last.
    missing.sort(key=lambda site: (availability[site] is None, availability[site] or 0, site))
    counts = Counter(verdict(total, targets) for total in totals.values())
    kinds = []
    for kind in dict.fromkeys(group.names[0] for group in groups):
        of_kind = [group for group in groups if group.names[0] == kind]
        missed = sum(bool(group.misses(targets)) for group in of_kind)
        kinds.append(GroupKind(kind, group_page(kind), len(of_kind), missed))
    return MonthView(
        month,
        [rows[site] for site in missing],
        [row for site, row in rows.items() if site not in missing],
        [(kind, counts[kind]) for kind in LEGEND if kind is not NOT_COMPUTED],
        kinds,
    )


def totals_of(figure: Figure, targets: Targets) -> PeriodTotals:
    """The figures of a period, each compared with its target."""
    misses = figure.misses(targets)
    missed = {miss.figure for miss in misses}
    seconds = figure.seconds or Seconds()
    unknown, missing = (
        short(percent(part, seconds.total), 1) if part else ""
        for part in (seconds.unknown, seconds.missing)
    )
    return PeriodTotals(
        availability_cell(figure, targets, 2),
        Value(short(figure.reliability), "reliability" in missed),
        Value(short(figure.unknown, 1), "unknown" in missed),
        unknown,
        missing,
        [str(miss) for miss in misses],
    )


def by_site(figures: Iterable[DayFigure]) -> dict[str, list[DayFigure]]:
    """The days of each site, sorted by site."""
    days: dict[str, list[DayFigure]] = {}
    for figure in figures:
        days.setdefault(figure.names[0], []).append(figure)
    return dict(sorted(days.items()))
