"""Figures, the targets that they miss, and groups of sites (availability rules 12, 13 and 15).

EGI's rule: a site that misses its targets in three months in a row has to explain itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from sam_pipeline.spark_jobs.rules.days import month_of
from sam_pipeline.spark_jobs.rules.seconds import Seconds, added, percent, short

IN_A_ROW = 3


@dataclass(frozen=True)
class Targets:
    """The targets of a report in percent (availability rule 15)."""

    availability: Fraction = Fraction(80)
    reliability: Fraction = Fraction(85)
    unknown: Fraction = Fraction(10)
    coverage: Fraction = Fraction(90)


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
    """The figures of a site, function, service, endpoint or group over a period.

    `days` have figures, and the data ends at `until` (epoch s) if one of them was open. Groups have
    numbers of sites instead of seconds.
    """

    names: tuple[str, ...]
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

    @property
    def has_no_weight(self) -> bool:
        """Whether sites of a group had a value, but all their weights are 0."""
        return self.availability is None and bool(self.sites_known)

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


def figure_of(
    names: tuple[str, ...], seconds: Seconds, days: int = 1, until: int | None = None
) -> Figure:
    """The figure of anything but a group, from its seconds."""
    return Figure(names, seconds.availability, seconds.reliability, seconds, days, until)


class Member(NamedTuple):
    """A site of a group on a day, and the weight that its figure has in that of the group."""

    group_type: str
    group_name: str
    site: str
    weight: int


class MemberDay(NamedTuple):
    """A day of a member, with the seconds of the site."""

    day: date
    member: Member
    seconds: Seconds


def weight_used(weight: int | None, argo: bool = False) -> int:
    """The weight that counts, from the announced one; ARGO adds 1 to all, and has 0 for none."""
    if argo:
        return (weight or 0) + 1
    return 1 if weight is None else weight


class MemberTotal(NamedTuple):
    """A member of a group over its days there, which are in order (availability rule 13).

    The weight of its availability is the sum over the days on which anything was known, that of its
    reliability over those that were not only downtime.
    """

    site: str
    days: Sequence[MemberDay]
    seconds: Seconds
    weight: int
    reliability_weight: int

    @classmethod
    def of(cls, site: str, days: Sequence[MemberDay]) -> MemberTotal:
        weight = reliability_weight = 0
        seconds = added(day.seconds for day in days) if len(days) > 1 else days[0].seconds
        for day in days:
            weight += day.member.weight if day.seconds.known else 0
            reliability_weight += day.member.weight if day.seconds.in_service else 0
        return cls(site, days, seconds, weight, reliability_weight)


@dataclass(frozen=True)
class GroupTotal:
    """A group over the days on which it had members."""

    names: tuple[str, str]
    members: Sequence[MemberTotal]

    @cached_property
    def figure(self) -> Figure:
        """Its means over the members with a value, of which there are `sites_known`."""
        numbers = [(m, m.seconds.up, m.seconds.known, m.seconds.in_service) for m in self.members]
        return Figure(
            self.names,
            _mean((up, known, member.weight) for member, up, known, _ in numbers),
            _mean((up, of, member.reliability_weight) for member, up, _, of in numbers),
            days=len({day.day for member in self.members for day in member.days}),
            sites_expected=len(numbers),
            sites_known=sum(known > 0 for _, _, known, _ in numbers),
        )

    def share(self, member: MemberTotal) -> Fraction | None:
        """The percentage of a member in the availability of the group."""
        return percent(member.weight, sum(each.weight for each in self.members))


def group_totals(days: Iterable[MemberDay]) -> list[GroupTotal]:
    """Every group, ordered by type and name, from the days of its members, which are in order.

    Members are those of which the report expects anything, and so has seconds.
    """
    groups: dict[tuple[str, str], dict[str, list[MemberDay]]] = {}
    for day in days:
        group_type, group_name, site, _ = day.member
        groups.setdefault((group_type, group_name), {}).setdefault(site, []).append(day)
    return [
        GroupTotal(names, [MemberTotal.of(site, of) for site, of in sorted(members.items())])
        for names, members in sorted(groups.items())
    ]


def group_figures(days: Iterable[MemberDay]) -> list[Figure]:
    """The figures of every group over a day or several, ordered by type and name."""
    return [total.figure for total in group_totals(days)]


def _mean(parts: Iterable[tuple[int, int, int]]) -> Fraction | None:
    """The mean of 100 · part / whole, from (part, whole, weight); None if all weights are 0."""
    total = 0
    # Most wholes are those of a day: fractions are slow to add.
    parts_of: dict[int, int] = {}
    for part, whole, weight in parts:
        if weight:
            total += weight
            parts_of[whole] = parts_of.get(whole, 0) + 100 * part * weight
    values = sum((Fraction(part, whole) for whole, part in parts_of.items()), Fraction())
    return values / total if total else None


def is_bad(figure: Figure, targets: Targets) -> bool:
    """Whether the availability or the reliability of a month is below its target."""
    missed = {miss.figure for miss in figure.misses(targets)}
    return bool(missed & {"availability", "reliability"})


def months_in_a_row(month: date) -> list[date]:
    """The first days of the months that the rule looks at, the given one first."""
    months = [month]
    while len(months) < IN_A_ROW:
        months.append(month_of(months[-1] - timedelta(days=1)).first)
    return months


def ends_bad_row(month: date, bad: Collection[date]) -> bool:
    """Whether the month (its first day) and those just before it are all bad."""
    return all(before in bad for before in months_in_a_row(month))
