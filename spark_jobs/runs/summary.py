"""The figures of a period: seconds added up, divided once, held against the targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from fractions import Fraction

from sqlalchemy import Connection

from sam_pipeline.spark_jobs.profiles.profile import Targets
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.groups import GroupFigure, Member, group_figures
from sam_pipeline.spark_jobs.rules.levels import GROUP, SITE
from sam_pipeline.spark_jobs.rules.seconds import Seconds, short
from sam_pipeline.spark_jobs.runs.published import (
    DayFigure,
    Names,
    day_figures,
    day_members,
    totals,
)


@dataclass(frozen=True)
class Miss:
    """A target that was missed (availability rule 15)."""

    what: str
    value: Fraction
    target: Fraction

    def __str__(self) -> str:
        relation = "above" if self.what == "unknown" else "below"
        what = "share of sites with data" if self.what == "coverage" else self.what
        return f"{what} {short(self.value)} is {relation} {float(self.target):g}"


@dataclass(frozen=True)
class Figure:
    """One thing over a period. Groups have no seconds, but numbers of sites."""

    names: Names
    availability: Fraction | None
    reliability: Fraction | None
    seconds: Seconds | None = None
    days: int = 0
    until: int | None = None
    sites_expected: int | None = None
    sites_known: int | None = None

    @property
    def unknown(self) -> Fraction | None:
        return self.seconds.unknown_share if self.seconds else None

    @property
    def coverage(self) -> Fraction | None:
        """Percent of a group's sites that had a value."""
        if not self.sites_expected or self.sites_known is None:
            return None
        return Fraction(100 * self.sites_known, self.sites_expected)

    def misses(self, targets: Targets) -> list[Miss]:
        """The targets this figure misses; what is undefined misses none."""
        lower = [
            Miss("availability", self.availability, targets.availability)
            if self.availability is not None and self.availability < targets.availability
            else None,
            Miss("reliability", self.reliability, targets.reliability)
            if self.reliability is not None and self.reliability < targets.reliability
            else None,
            Miss("coverage", self.coverage, targets.coverage)
            if self.coverage is not None and self.coverage < targets.coverage
            else None,
        ]
        too_unknown = self.unknown is not None and self.unknown > targets.unknown
        higher = (
            Miss("unknown", self.unknown or Fraction(), targets.unknown) if too_unknown else None
        )
        return [miss for miss in (*lower, higher) if miss]


def period_figures(connection: Connection, report: str, level: str, period: Period) -> list[Figure]:
    """The figures of every thing of a level over the period (availability rules 12 and 13)."""
    if level == GROUP:
        return _groups(connection, report, period)
    found = totals(connection, report, level, period)
    return sorted(
        (_figure(each.names, each.seconds, each.days, each.until) for each in found),
        key=lambda figure: figure.names,
    )


def added_up(days: Iterable[DayFigure]) -> Iterator[Figure]:
    """One figure for each thing, ordered by its names."""
    by_names: dict[Names, list[DayFigure]] = {}
    for each in days:
        by_names.setdefault(each.names, []).append(each)
    for names in sorted(by_names):
        own = by_names[names]
        until = max((each.until for each in own if each.until is not None), default=None)
        yield _figure(names, sum((each.seconds for each in own), Seconds()), len(own), until)


def group_means(
    members: Iterable[tuple[date, Member]], sites: Iterable[DayFigure]
) -> list[GroupFigure]:
    """Groups over several days: of each site the days on which it was a member, its last weight."""
    seconds_on = {(each.day, each.names[0]): each.seconds for each in sites}
    newest: dict[tuple[str, str, str], Member] = {}
    totals: dict[tuple[str, str, str], Seconds] = {}
    for day, member in members:
        key = (member.group_type, member.group_name, member.site)
        newest[key] = member
        totals[key] = totals.get(key, Seconds()) + seconds_on.get((day, member.site), Seconds())
    return group_figures(newest.values(), {newest[key]: totals[key] for key in newest})


def group_total(group: GroupFigure) -> Figure:
    """A group's figure with its name, as those of all other things."""
    return Figure(
        (group.group_type, group.group_name),
        group.availability,
        group.reliability,
        sites_expected=group.sites_expected,
        sites_known=group.sites_known,
    )


def _figure(names: Names, total: Seconds, days: int, until: int | None) -> Figure:
    return Figure(names, total.availability, total.reliability, total, days, until)


def _groups(connection: Connection, report: str, period: Period) -> list[Figure]:
    sites = list(day_figures(connection, report, SITE, period))
    return list(map(group_total, group_means(day_members(connection, report, period), sites)))
