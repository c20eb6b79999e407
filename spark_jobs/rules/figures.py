"""Figures, and the targets that they miss (availability rules 12, 13 and 15)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from sam_pipeline.spark_jobs.rules.seconds import Seconds, short


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
