"""Compares the figures of sites: those that are published with those of another profile."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from sam_pipeline.spark_jobs.rules.figures import Figure, Miss
from sam_pipeline.spark_jobs.runs.published import DayFigure
from sam_pipeline.spark_jobs.runs.summary import PeriodTargets, added_up


@dataclass(frozen=True)
class SiteComparison:
    """A site over a period, before and after; None if nothing of it was or is expected.

    `days` are those on which a figure differs, in order.
    """

    site: str
    before: Figure | None
    after: Figure | None
    days: Sequence[date]
    missed_before: Sequence[Miss]
    missed_after: Sequence[Miss]

    @property
    def differs(self) -> bool:
        return bool(self.days) or self.newly_misses or self.newly_meets

    @property
    def newly_misses(self) -> bool:
        return bool(self.missed_after) and not self.missed_before

    @property
    def newly_meets(self) -> bool:
        """It missed a target, and now has figures that meet all."""
        is_known = self.after is not None and self.after.availability is not None
        return bool(self.missed_before) and not self.missed_after and is_known


def compare(
    before: Iterable[DayFigure],
    after: Iterable[DayFigure],
    days: Collection[date],
    targets_before: PeriodTargets,
    targets_after: PeriodTargets,
) -> list[SiteComparison]:
    """All sites over these days, by name."""
    sides = [_by_site(before, days), _by_site(after, days)]
    comparisons = []
    for site in sorted(sides[0].keys() | sides[1].keys()):
        old, new = (side.get(site, {}) for side in sides)
        old_figure, new_figure = (added_up([*of.values()]) if of else None for of in (old, new))
        comparisons.append(
            SiteComparison(
                site,
                old_figure,
                new_figure,
                sorted(
                    day
                    for day in old.keys() | new.keys()
                    if _figures(old.get(day)) != _figures(new.get(day))
                ),
                old_figure.misses(targets_before.of_site(site)) if old_figure else (),
                new_figure.misses(targets_after.of_site(site)) if new_figure else (),
            )
        )
    return comparisons


def _by_site(
    figures: Iterable[DayFigure], days: Collection[date]
) -> dict[str, dict[date, DayFigure]]:
    sites: dict[str, dict[date, DayFigure]] = {}
    for figure in figures:
        if figure.day in days:
            sites.setdefault(figure.names[0], {})[figure.day] = figure
    return sites


def _figures(figure: DayFigure | None) -> object:
    if figure is None:
        return None
    seconds = figure.seconds
    return seconds.availability, seconds.reliability, seconds.unknown_share
