"""Groups of sites (region, federation, VO): weighted means of their sites (rule 13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from sam_pipeline.spark_jobs.rules.figures import Figure
from sam_pipeline.spark_jobs.rules.seconds import Seconds


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
