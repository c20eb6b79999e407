"""Groups of sites (region, federation, VO): weighted means of those with a value (rule 13)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from sam_pipeline.spark_jobs.rules.seconds import Seconds


@dataclass(frozen=True)
class Member:
    """A site of a group; a site without a weight counts 0 + 1."""

    group_type: str
    group_name: str
    site: str
    weight: int


@dataclass(frozen=True)
class GroupFigure:
    """The means, and how many of the sites that were expected had a value."""

    group_type: str
    group_name: str
    availability: Fraction | None
    reliability: Fraction | None
    sites_expected: int
    sites_known: int

    @property
    def coverage(self) -> Fraction:
        """Percent of the sites that had a value."""
        return Fraction(100 * self.sites_known, self.sites_expected)


def group_figures(
    members: Iterable[Member], seconds_of: Mapping[Member, Seconds]
) -> list[GroupFigure]:
    """The figures of every group, ordered by type and name."""
    groups: dict[tuple[str, str], list[Member]] = {}
    for member in members:
        groups.setdefault((member.group_type, member.group_name), []).append(member)
    return [_figure(name, groups[name], seconds_of) for name in sorted(groups)]


def _figure(
    name: tuple[str, str], members: list[Member], seconds_of: Mapping[Member, Seconds]
) -> GroupFigure:
    def mean(value: Callable[[Seconds], Fraction | None]) -> tuple[Fraction | None, int]:
        found = [(value(seconds_of.get(m, Seconds())), m.weight + 1) for m in members]
        known = [(figure, weight) for figure, weight in found if figure is not None]
        total = sum(weight for _, weight in known)
        weighted = sum((figure * weight for figure, weight in known), Fraction())
        return (weighted / total if total else None), len(known)

    availability, known = mean(lambda seconds: seconds.availability)
    reliability, _ = mean(lambda seconds: seconds.reliability)
    return GroupFigure(*name, availability, reliability, len(members), known)
