"""The page of a report's month: who misses a target, then every site on every day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction

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
from sam_pipeline.spark_jobs.rules.days import Period, moment
from sam_pipeline.spark_jobs.rules.seconds import Seconds, percent, short
from sam_pipeline.spark_jobs.runs.published import DayFigure, Run
from sam_pipeline.spark_jobs.runs.summary import Figure, added_up


@dataclass(frozen=True)
class Day:
    """A column of the matrix; `until` where the day was still open."""

    day: date
    until: str = ""

    @property
    def weekday(self) -> str:
        return f"{self.day:%a}"

    @property
    def number(self) -> str:
        return f"{self.day:%d}"


@dataclass(frozen=True)
class Value:
    """A figure in percent that may miss its target."""

    text: str
    misses: bool = False


@dataclass(frozen=True)
class Total:
    """The figures of something over the whole period."""

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
    total: Total
    days: Sequence[Cell]


@dataclass(frozen=True)
class GroupKind:
    """A kind of groups, as the month's page names it."""

    name: str
    link: str
    groups: int
    missing: int


@dataclass(frozen=True)
class Month:
    """What all pages of a report's month know."""

    report: str
    period: Period
    path: str
    runs: Sequence[Run]
    sealed: str

    @property
    def targets(self) -> Targets:
        """Those of the newest day's profile."""
        return self.runs[-1].profile.targets

    @property
    def name(self) -> str:
        return f"{self.period.first:%B %Y}"

    @property
    def days(self) -> list[Day]:
        until = {run.day: clock(run.until) for run in self.runs}
        return [Day(day, until.get(day, "")) for day in self.period.days()]

    @property
    def until(self) -> str:
        """The newest moment that counts, if a day was still open."""
        last = max((run.until for run in self.runs if run.until is not None), default=None)
        return "" if last is None else f"{moment(last):%Y-%m-%d %H:%M}"


@dataclass(frozen=True)
class MonthView:
    """The matrix; `missing` are the rows of sites that miss a target, `fine` all others."""

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
    totals = {site: next(added_up(days)) for site, days in figures.items()}
    rows = {
        site: _site_row(month, totals[site], {each.day: each for each in days})
        for site, days in figures.items()
    }
    counted = Counter(verdict(total, month.targets) for total in totals.values())
    return MonthView(
        month,
        [rows[site] for site in _worst_first(totals, month.targets)],
        [rows[site] for site, total in totals.items() if not total.misses(month.targets)],
        [(each, counted[each]) for each in LEGEND if each is not NOT_COMPUTED],
        list(_kinds(groups, month.targets)),
    )


def total_of(figure: Figure, targets: Targets) -> Total:
    """The figures of a period, each held against its target."""
    misses = figure.misses(targets)
    missed = {miss.what for miss in misses}
    seconds = figure.seconds or Seconds()
    return Total(
        availability_cell(figure, targets, 2),
        Value(short(figure.reliability), "reliability" in missed),
        Value(short(figure.unknown, 1), "unknown" in missed),
        _share(seconds.unknown, seconds),
        _share(seconds.missing, seconds),
        [str(miss) for miss in misses],
    )


def by_site(figures: Sequence[DayFigure]) -> dict[str, list[DayFigure]]:
    """The days of each site, in the order of their names."""
    found: dict[str, list[DayFigure]] = {}
    for each in figures:
        found.setdefault(each.names[0], []).append(each)
    return dict(sorted(found.items()))


def clock(second: int | None) -> str:
    return "" if second is None else f"{moment(second):%H:%M}"


def _site_row(month: Month, total: Figure, days: Mapping[date, DayFigure]) -> SiteRow:
    link = site_page(total.names[0])
    cells = [
        _day_cell(days.get(day), month.targets, f"{link}#{day}") for day in month.period.days()
    ]
    return SiteRow(total.names[0], link, total_of(total, month.targets), cells)


def _day_cell(day: DayFigure | None, targets: Targets, link: str) -> Cell:
    """A day; one that was OK all the time has nothing to explain, so no link."""
    if day is None:
        return availability_cell(None, targets, 0)
    all_ok = day.seconds.ok == day.seconds.total
    return availability_cell(one_day(day), targets, 0, "" if all_ok else link)


def one_day(day: DayFigure) -> Figure:
    seconds = day.seconds
    return Figure(day.names, seconds.availability, seconds.reliability, seconds, 1, day.until)


def _worst_first(totals: Mapping[str, Figure], targets: Targets) -> list[str]:
    """The sites that miss a target: the lowest availability first, those without one last."""
    missing = [site for site, total in totals.items() if total.misses(targets)]
    return sorted(missing, key=lambda site: (_or_more(totals[site].availability), site))


def _or_more(availability: Fraction | None) -> Fraction:
    return Fraction(101) if availability is None else availability


def _kinds(groups: Sequence[Figure], targets: Targets) -> Iterator[GroupKind]:
    for kind in dict.fromkeys(group.names[0] for group in groups):
        of_kind = [group for group in groups if group.names[0] == kind]
        missing = sum(bool(group.misses(targets)) for group in of_kind)
        yield GroupKind(kind, group_page(kind), len(of_kind), missing)


def _share(part: int, seconds: Seconds) -> str:
    return short(percent(part, seconds.total), 1) if part else ""
