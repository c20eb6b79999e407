"""The page of a kind of groups (federation, region, VO): its groups, and the sites of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from sam_pipeline.spark_jobs.pages.month import Month, PeriodTotals, Value, totals_of
from sam_pipeline.spark_jobs.pages.verdict import Cell, availability_cell
from sam_pipeline.spark_jobs.pages.writer import site_page
from sam_pipeline.spark_jobs.rules.groups import Member, group_figures
from sam_pipeline.spark_jobs.rules.seconds import Seconds, short
from sam_pipeline.spark_jobs.runs.published import DayFigure
from sam_pipeline.spark_jobs.runs.summary import Figure, added_up, group_means, group_total

DayMembers = Sequence[tuple[date, Member]]


@dataclass(frozen=True)
class MemberRow:
    """A site of a group; `total` is None if the site has no figures."""

    site: str
    link: str
    weight: int
    total: PeriodTotals | None


@dataclass(frozen=True)
class GroupRow:
    """A group over the period and on each day; `number` is its row on the page, from 1."""

    number: int
    name: str
    availability: Cell
    reliability: Value
    coverage: Value
    misses: Sequence[str]
    days: Sequence[Cell]
    members: Sequence[MemberRow]


@dataclass(frozen=True)
class GroupsView:
    """All groups of a kind: `missing` are those that miss a target, `fine` all others."""

    month: Month
    kind: str
    missing: Sequence[GroupRow]
    fine: Sequence[GroupRow]


def group_totals(members: DayMembers, figures: Mapping[str, Sequence[DayFigure]]) -> list[Figure]:
    """The figures of all groups over all days."""
    sites = [day for days in figures.values() for day in days]
    return [group_total(group) for group in group_means(members, sites)]


def group_views(
    month: Month,
    totals: Sequence[Figure],
    members: DayMembers,
    figures: Mapping[str, Sequence[DayFigure]],
) -> Iterator[GroupsView]:
    """A page for each kind of groups."""
    targets = month.targets
    site_rows = {site: totals_of(next(added_up(days)), targets) for site, days in figures.items()}
    # The weight of a site is that of its newest day in the group.
    members_of: dict[tuple[str, ...], dict[str, MemberRow]] = {}
    members_on: dict[date, list[Member]] = {}
    for day, member in members:
        members_on.setdefault(day, []).append(member)
        total = site_rows.get(member.site)
        members_of.setdefault((member.group_type, member.group_name), {})[member.site] = MemberRow(
            member.site, site_page(member.site) if total else "", member.weight, total
        )
    seconds = {(day.day, site): day.seconds for site, days in figures.items() for day in days}
    figure_on: dict[tuple[object, ...], Figure] = {
        (day, group.group_type, group.group_name): group_total(group)
        for day, of_day in members_on.items()
        for group in group_figures(
            of_day, {member: seconds.get((day, member.site), Seconds()) for member in of_day}
        )
    }

    def row(number: int, total: Figure) -> GroupRow:
        misses = total.misses(targets)
        missed = {miss.figure for miss in misses}
        return GroupRow(
            number,
            total.names[1],
            availability_cell(total, targets, 2),
            Value(short(total.reliability), "reliability" in missed),
            Value(f"{total.sites_known} of {total.sites_expected}", "coverage" in missed),
            [str(miss) for miss in misses],
            [
                availability_cell(figure_on.get((day, *total.names)), targets, 0)
                for day in month.period.days()
            ],
            [member for _, member in sorted(members_of[total.names].items())],
        )

    for kind in dict.fromkeys(total.names[0] for total in totals):
        of_kind = [total for total in totals if total.names[0] == kind]
        missing = [total for total in of_kind if total.misses(targets)]
        fine = [total for total in of_kind if total not in missing]
        rows = [row(number, total) for number, total in enumerate([*missing, *fine], 1)]
        yield GroupsView(month, kind, rows[: len(missing)], rows[len(missing) :])
