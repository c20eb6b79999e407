"""The page of a type of groups (federation, region, VO): its groups, and the sites of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain

from sam_pipeline.spark_jobs.pages.verdict import (
    Cell,
    PeriodTotals,
    TargetValue,
    Verdict,
    availability_cell,
    empty_cell,
    totals_of,
    worst_first,
)
from sam_pipeline.spark_jobs.pages.writer import group_page, site_page, slug
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.figures import Figure, Member, group_figures
from sam_pipeline.spark_jobs.rules.levels import GROUP
from sam_pipeline.spark_jobs.rules.seconds import short
from sam_pipeline.spark_jobs.runs.published import DayFigure
from sam_pipeline.spark_jobs.runs.summary import PeriodTargets, added_up, group_means


@dataclass(frozen=True)
class MemberRow:
    """A site of a group."""

    site: str
    link: str
    weight: int
    total: PeriodTotals


@dataclass(frozen=True)
class GroupRow:
    """A group over the period and on each day."""

    name: str
    availability: Cell
    reliability: TargetValue
    coverage: TargetValue
    misses: Sequence[str]
    days: Sequence[Cell]
    members: Sequence[MemberRow]

    @property
    def verdict(self) -> Verdict:
        return self.availability.verdict

    @property
    def anchor(self) -> str:
        """Its id on the page, which does not depend on the figures."""
        return f"group-{slug(self.name, str)}"


@dataclass(frozen=True)
class GroupsView:
    """All groups of a type: those that `missed` a target and those that `met` them, worst first."""

    group_type: str
    missed: Sequence[GroupRow]
    met: Sequence[GroupRow]

    @property
    def groups(self) -> int:
        return len(self.missed) + len(self.met)

    @property
    def link(self) -> str:
        """The path of the page, relative to the index of the month."""
        return group_page(self.group_type)


def group_views(
    targets: PeriodTargets,
    period: Period,
    members: Sequence[tuple[date, Member]],
    figures: Mapping[str, Sequence[DayFigure]],
) -> Iterator[GroupsView]:
    """A page for each type of groups, from the figures of each site's days."""
    totals = group_means(members, chain.from_iterable(figures.values()))
    site_totals = {
        site: totals_of(added_up(days), targets.of_site(site)) for site, days in figures.items()
    }
    # The weight of a site is that of its newest day in the group.
    members_of: dict[tuple[str, ...], dict[str, MemberRow]] = {}
    members_on: dict[date, list[Member]] = {}
    for day, member in members:
        members_on.setdefault(day, []).append(member)
        members_of.setdefault((member.group_type, member.group_name), {})[member.site] = MemberRow(
            member.site, site_page(member.site), member.weight, site_totals[member.site]
        )
    seconds = {(day.day, site): day.seconds for site, days in figures.items() for day in days}
    figure_on: dict[tuple[object, ...], Figure] = {
        (day, *group.names): group
        for day, of_day in members_on.items()
        for group in group_figures({member: seconds[day, member.site] for member in of_day})
    }

    def row(total: Figure) -> GroupRow:
        own_targets = targets.of(GROUP, total.names)
        misses = total.misses(own_targets)
        missed = {miss.figure for miss in misses}
        return GroupRow(
            total.names[1],
            availability_cell(total, own_targets, 2),
            TargetValue(short(total.reliability), "reliability" in missed),
            TargetValue(f"{total.sites_known} of {total.sites_expected}", "coverage" in missed),
            [str(miss) for miss in misses],
            [
                availability_cell(figure, own_targets, 0)
                if (figure := figure_on.get((day, *total.names)))
                else empty_cell(day in members_on)
                for day in period.days()
            ],
            [member for _, member in sorted(members_of[total.names].items())],
        )

    for group_type in dict.fromkeys(total.names[0] for total in totals):
        of_type = [total for total in totals if total.names[0] == group_type]
        of_type.sort(key=lambda total: worst_first(total, targets.of(GROUP, total.names)))
        missed = [t for t in of_type if t.misses(targets.of(GROUP, t.names))]
        met = [total for total in of_type if total not in missed]
        yield GroupsView(group_type, list(map(row, missed)), list(map(row, met)))
