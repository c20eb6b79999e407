"""Figures, the targets that they miss, and groups of sites (availability rules 12, 13 and 15).

EGI's rule: a site that misses its targets in three months in a row has to explain itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction

from sam_pipeline.spark_jobs.rules.days import month_of
from sam_pipeline.spark_jobs.rules.seconds import Seconds, short

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


@dataclass(frozen=True)
class Member:
    """A site of a group. It counts weight + 1 times; a site without a weight has weight 0."""

    group_type: str
    group_name: str
    site: str
    weight: int


def group_figures(sites: Mapping[Member, Seconds]) -> list[Figure]:
    """The figures of every group, ordered by type and name.

    They are means over the `sites_known` members with a value, out of `sites_expected` members:
    those of which the report expects anything, and so has seconds.
    """
    groups: dict[tuple[str, str], list[Member]] = {}
    for member in sites:
        groups.setdefault((member.group_type, member.group_name), []).append(member)
    figures = []
    for name, members in sorted(groups.items(), key=lambda group: group[0]):
        weights = [member.weight + 1 for member in members]
        seconds = [sites[member] for member in members]
        availabilities = [value.availability for value in seconds]
        figures.append(
            Figure(
                name,
                availability=_weighted_mean(availabilities, weights),
                reliability=_weighted_mean([value.reliability for value in seconds], weights),
                sites_expected=len(members),
                sites_known=sum(value is not None for value in availabilities),
            )
        )
    return figures


def _weighted_mean(values: Sequence[Fraction | None], weights: Sequence[int]) -> Fraction | None:
    """The mean of the known values; None if there are none."""
    known = [
        (value, weight) for value, weight in zip(values, weights, strict=True) if value is not None
    ]
    total = sum(weight for _, weight in known)
    return sum((value * weight for value, weight in known), Fraction()) / total if total else None


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
