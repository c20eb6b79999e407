"""What the pages show, ready for the templates: no figure is computed there."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from spark_jobs.database_inputs import Downtime, Result
from spark_jobs.days import Period, moment
from spark_jobs.drawing import Bar, announced_bars, span, status_bars, told
from spark_jobs.evidence import Evidence
from spark_jobs.explanation import SiteDay, Thing, arithmetic
from spark_jobs.figures import Seconds, short
from spark_jobs.levels import ENDPOINT, FUNCTION, SERVICE, SITE
from spark_jobs.profile import Profile, Targets
from spark_jobs.stored import DayFigure, Run
from spark_jobs.summary import Figure, added_up
from spark_jobs.verdict import MET, Cell, availability_cell

_LEVEL_WORDS = {SITE: "site", FUNCTION: "function", SERVICE: "service", ENDPOINT: "endpoint"}


@dataclass(frozen=True)
class Day:
    """A column of the matrix; `until` where the day was still open."""

    day: date
    until: str

    @property
    def weekday(self) -> str:
        return f"{self.day:%a}"

    @property
    def number(self) -> str:
        return f"{self.day:%d}"


@dataclass(frozen=True)
class SiteRow:
    """A site in the matrix: the period's figures, then a cell for each day."""

    site: str
    link: str
    period: Cell
    reliability: str
    unknown: str
    days: Sequence[Cell]


@dataclass(frozen=True)
class GroupRow:
    """A group of sites over the period."""

    group_type: str
    group_name: str
    period: Cell
    reliability: str
    sites: str


@dataclass(frozen=True)
class Missed:
    """Who misses which targets over the period."""

    name: str
    link: str
    misses: Sequence[str]


@dataclass(frozen=True)
class ReportView:
    """One report on the index page."""

    name: str
    targets: Targets
    days: Sequence[Day]
    sites: Sequence[SiteRow]
    groups: Sequence[GroupRow]
    missed: Sequence[Missed]
    runs: Sequence[Run]


@dataclass(frozen=True)
class Lane:
    """A line of a day's drawing."""

    level: str
    name: str
    availability: str
    bars: Sequence[Bar]
    announced: Sequence[Bar]
    words: str


@dataclass(frozen=True)
class Failure:
    """A stretch in which a metric wasn't OK, and what it said."""

    time: str
    endpoint: str
    metric_name: str
    status: str
    text: str
    message_id: str
    more: str


@dataclass(frozen=True)
class DayView:
    """A day on the page of a site."""

    day: Day
    cell: Cell
    seconds: Seconds
    arithmetic: Sequence[str]
    lanes: Sequence[Lane]
    failures: Sequence[Failure]
    downtimes: Sequence[str]

    @property
    def is_open(self) -> bool:
        """Whether the day is shown unfolded: someone will ask about it."""
        return self.cell.verdict is not MET


@dataclass(frozen=True)
class SiteView:
    """The page of a site."""

    report: str
    site: str
    period: Cell
    figure: Figure
    misses: Sequence[str]
    days: Sequence[DayView]
    runs: Sequence[Run]


def report_view(
    name: str,
    period: Period,
    runs: Sequence[Run],
    sites: Sequence[DayFigure],
    groups: Sequence[Figure],
) -> ReportView:
    """The index page's part about one report."""
    targets = runs[-1].profile.targets
    figures = list(added_up(sites))
    return ReportView(
        name,
        targets,
        _days(period, runs),
        [_site_row(name, each, sites, period, targets) for each in figures],
        [_group_row(each, targets) for each in groups],
        list(_missed(name, [*figures, *groups], targets)),
        runs,
    )


def site_view(
    report: str,
    site: str,
    runs: Sequence[Run],
    figures: Sequence[DayFigure],
    days: Sequence[SiteDay],
) -> SiteView:
    """The page of a site."""
    targets = runs[-1].profile.targets
    [figure] = added_up(figures)
    run_of = {run.day: run for run in runs}
    return SiteView(
        report,
        site,
        availability_cell(figure, targets, site),
        figure,
        [str(miss) for miss in figure.misses(targets)],
        [_day_view(each, run_of[each.day].profile) for each in days if each.things],
        runs,
    )


def slug(name: str) -> str:
    """A file name for any name; different names give different ones."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", name)
    if safe == name:
        return name
    return f"{safe.strip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def site_link(report: str, site: str) -> str:
    """Where the page of a site is, from the index page."""
    return f"{slug(report)}/{slug(site)}.html"


def _days(period: Period, runs: Sequence[Run]) -> list[Day]:
    until = {run.day: _clock(run.until) for run in runs}
    return [Day(day, until.get(day, "")) for day in period.days()]


def _clock(second: int | None) -> str:
    return "" if second is None else f"{moment(second):%H:%M}"


def _site_row(
    report: str, figure: Figure, days: Sequence[DayFigure], period: Period, targets: Targets
) -> SiteRow:
    site = figure.names[0]
    of_day = {each.day: each for each in days if each.names == figure.names}
    link = site_link(report, site)
    cells = [
        availability_cell(
            next(added_up([of_day[day]])) if day in of_day else None,
            targets,
            f"{site}, {day}",
            f"{link}#{day}",
        )
        for day in period.days()
    ]
    return SiteRow(
        site,
        link,
        availability_cell(figure, targets, f"{site}, all days"),
        short(figure.reliability, 1),
        short(figure.unknown, 1),
        cells,
    )


def _group_row(figure: Figure, targets: Targets) -> GroupRow:
    group_type, group_name = figure.names
    return GroupRow(
        group_type,
        group_name,
        availability_cell(figure, targets, f"{group_type} {group_name}"),
        short(figure.reliability, 1),
        f"{figure.sites_known} of {figure.sites_expected}",
    )


def _missed(report: str, figures: Sequence[Figure], targets: Targets) -> Iterator[Missed]:
    for figure in figures:
        misses = [str(miss) for miss in figure.misses(targets)]
        if misses:
            link = site_link(report, figure.names[0]) if figure.seconds else ""
            yield Missed(" ".join(figure.names), link, misses)


def _day_view(site_day: SiteDay, profile: Profile) -> DayView:
    [site] = site_day.of_level(SITE)
    figure = Figure(
        (site_day.site,), site.seconds.availability, site.seconds.reliability, site.seconds
    )
    return DayView(
        Day(site_day.day, _clock(site_day.until)),
        availability_cell(figure, profile.targets, f"{site_day.site}, {site_day.day}"),
        site.seconds,
        arithmetic(site.seconds),
        [_lane(thing, site_day, profile) for thing in site_day.things],
        list(_failures(site_day)),
        [_downtime(each, profile) for each in site_day.downtimes],
    )


def _lane(thing: Thing, site_day: SiteDay, profile: Profile) -> Lane:
    name = " ".join(thing.names[1:]) or thing.names[0]
    announced = [
        each
        for each in site_day.downtimes
        if thing.level == ENDPOINT
        and each.covers(*thing.names)
        and not profile.counts(each.classification, each.severity)
    ]
    return Lane(
        _LEVEL_WORDS[thing.level],
        name,
        short(thing.seconds.availability),
        status_bars(thing.segments),
        announced_bars(announced, site_day.start, site_day.end),
        told(f"{_LEVEL_WORDS[thing.level]} {name}", thing.segments),
    )


def _failures(site_day: SiteDay) -> Iterator[Failure]:
    """What wasn't OK, once each, in the order of time."""
    found = {
        (each.start, thing.names, each.metric_name): _failure(thing, each)
        for thing in site_day.of_level(ENDPOINT)
        for reason in thing.reasons
        for each in reason.evidence
    }
    return (found[key] for key in sorted(found))


def _failure(thing: Thing, evidence: Evidence) -> Failure:
    results = evidence.results
    return Failure(
        span(evidence.start, evidence.end),
        " ".join(thing.names[1:]),
        evidence.metric_name,
        evidence.status,
        results[0].summary if results else "no result",
        results[0].message_id if results else "",
        _more(results),
    )


def _more(results: Sequence[Result]) -> str:
    if len(results) < 2:
        return ""
    return f"{len(results) - 1} more, last {moment(results[-1].measured):%H:%M:%S}"


def _downtime(downtime: Downtime, profile: Profile) -> str:
    of = " ".join(filter(None, (downtime.service_flavour, downtime.host_name))) or "the whole site"
    counts = profile.counts(downtime.classification, downtime.severity)
    start, end = (f"{moment(at):%Y-%m-%d %H:%M:%S}" for at in (downtime.start, downtime.end))
    text = f": {downtime.description}" if downtime.description else ""
    effect = "counts" if counts else "changes no figure"
    kind = f"{downtime.classification}/{downtime.severity}"
    return f"{kind} ({effect}) of {of}, {start} to {end}{text}"
