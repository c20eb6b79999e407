"""The figures of a period, from seconds added up and divided once; and the targets they miss."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    until_of,
)


@dataclass(frozen=True)
class Miss:
    """A target that was missed (availability rule 15)."""

    figure: str
    value: Fraction
    target: Fraction

    def __str__(self) -> str:
        relation = "above" if self.figure == "unknown" else "below"
        name = "share of sites with data" if self.figure == "coverage" else self.figure
        return f"{name} {short(self.value)} is {relation} {float(self.target):g}"


@dataclass(frozen=True)
class Figure:
    """The figures of one thing over a period. Groups have numbers of sites instead of seconds."""

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
        """The percentage of a group's sites that had a value."""
        if not self.sites_expected or self.sites_known is None:
            return None
        return Fraction(100 * self.sites_known, self.sites_expected)

    def misses(self, targets: Targets) -> list[Miss]:
        """The targets this figure misses; an undefined value misses none."""
        lower = (
            ("availability", self.availability, targets.availability),
            ("reliability", self.reliability, targets.reliability),
            ("coverage", self.coverage, targets.coverage),
        )
        misses = [
            Miss(figure, value, target)
            for figure, value, target in lower
            if value is not None and value < target
        ]
        if self.unknown is not None and self.unknown > targets.unknown:
            misses.append(Miss("unknown", self.unknown, targets.unknown))
        return misses


def period_figures(connection: Connection, report: str, level: str, period: Period) -> list[Figure]:
    """The figures of all things of a level over the period (availability rules 12 and 13)."""
    if level == GROUP:
        sites = list(day_figures(connection, report, SITE, period))
        return list(map(group_total, group_means(day_members(connection, report, period), sites)))
    figures = (
        figure_of(total.names, total.seconds, total.days, total.until)
        for total in totals(connection, report, level, period)
    )
    return sorted(figures, key=lambda figure: figure.names)


def added_up(days: Sequence[DayFigure]) -> Figure:
    """The figure over the days of one site, function, service or endpoint."""
    seconds = sum((day.seconds for day in days), Seconds())
    return figure_of(days[0].names, seconds, len(days), until_of(days))


def group_means(
    members: Iterable[tuple[date, Member]], sites: Iterable[DayFigure]
) -> list[GroupFigure]:
    """Groups over several days: each site counts on its days as a member, with its last weight."""
    seconds_on = {(figure.day, figure.names[0]): figure.seconds for figure in sites}
    newest: dict[tuple[str, str, str], Member] = {}
    totals: dict[tuple[str, str, str], Seconds] = {}
    for day, member in members:
        key = (member.group_type, member.group_name, member.site)
        newest[key] = member
        totals[key] = totals.get(key, Seconds()) + seconds_on.get((day, member.site), Seconds())
    return group_figures(newest.values(), {newest[key]: totals[key] for key in newest})


def group_total(group: GroupFigure) -> Figure:
    """The figure of a group in the form of all other figures."""
    return Figure(
        (group.group_type, group.group_name),
        group.availability,
        group.reliability,
        sites_expected=group.sites_expected,
        sites_known=group.sites_known,
    )


def figure_of(names: Names, seconds: Seconds, days: int = 1, until: int | None = None) -> Figure:
    """The figure of anything but a group, from its seconds."""
    return Figure(names, seconds.availability, seconds.reliability, seconds, days, until)
