"""The page of a kind of groups (federation, region, VO): its groups, and the sites of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from sam_pipeline.spark_jobs.pages.month import Month, Total, Value, total_of
from sam_pipeline.spark_jobs.pages.verdict import Cell, availability_cell
from sam_pipeline.spark_jobs.pages.writer import site_page
from sam_pipeline.spark_jobs.profiles.profile import Targets
from sam_pipeline.spark_jobs.rules.groups import GroupFigure, Member, group_figures
from sam_pipeline.spark_jobs.rules.seconds import Seconds, short
from sam_pipeline.spark_jobs.runs.published import DayFigure
from sam_pipeline.spark_jobs.runs.summary import Figure, added_up, group_means

DayMembers = Sequence[tuple[date, Member]]


@dataclass(frozen=True)
class MemberRow:
    """A site of a group; `total` is None where the site has no figures at all."""

    site: str
    link: str
    weight: int
    total: Total | None


@dataclass(frozen=True)
class GroupRow:
    """A group over the period, and on each day; `number` is its place on the page."""

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
    """All groups of a kind; `missing` those that miss a target, `fine` all others."""

    month: Month
    kind: str
    missing: Sequence[GroupRow]
    fine: Sequence[GroupRow]


def group_totals(members: DayMembers, figures: Mapping[str, Sequence[DayFigure]]) -> list[Figure]:
    """The groups' figures over all days."""
    sites = [day for days in figures.values() for day in days]
    return [_figure(each) for each in group_means(members, sites)]


def group_views(
    month: Month,
    totals: Sequence[Figure],
    members: DayMembers,
    figures: Mapping[str, Sequence[DayFigure]],
) -> Iterator[GroupsView]:
    """A page for each kind of groups."""
    sites = {site: next(added_up(days)) for site, days in figures.items()}
    rows = _Rows(month, members, figures, sites)
    for kind in dict.fromkeys(total.names[0] for total in totals):
        of_kind = [total for total in totals if total.names[0] == kind]
        missing = [total for total in of_kind if total.misses(month.targets)]
        fine = [total for total in of_kind if total not in missing]
        ordered = [rows.row(number, total) for number, total in enumerate([*missing, *fine], 1)]
        yield GroupsView(month, kind, ordered[: len(missing)], ordered[len(missing) :])


class _Rows:
    """Makes the rows of groups."""

    def __init__(
        self,
        month: Month,
        members: DayMembers,
        figures: Mapping[str, Sequence[DayFigure]],
        sites: Mapping[str, Figure],
    ) -> None:
        self._month = month
        self._sites = sites
        self._days = _by_day(members, figures)
        # Of several days the last one tells the weight.
        self._members: dict[tuple[str, str], dict[str, Member]] = {}
        for _, each in members:
            key = (each.group_type, each.group_name)
            self._members.setdefault(key, {})[each.site] = each

    def row(self, number: int, total: Figure) -> GroupRow:
        targets = self._month.targets
        misses = total.misses(targets)
        missed = {miss.what for miss in misses}
        kind, name = total.names
        return GroupRow(
            number,
            name,
            availability_cell(total, targets, 2),
            Value(short(total.reliability), "reliability" in missed),
            Value(f"{total.sites_known} of {total.sites_expected}", "coverage" in missed),
            [str(miss) for miss in misses],
            [
                availability_cell(self._days.get((day, kind, name)), targets, 0)
                for day in self._month.period.days()
            ],
            [_member(each, self._sites, targets) for each in self._sorted((kind, name))],
        )

    def _sorted(self, key: tuple[str, str]) -> list[Member]:
        return sorted(self._members[key].values(), key=lambda member: member.site)


def _by_day(
    members: DayMembers, figures: Mapping[str, Sequence[DayFigure]]
) -> dict[tuple[date, str, str], Figure]:
    """Each group's figure of each day."""
    seconds = {(day.day, site): day.seconds for site, days in figures.items() for day in days}
    on_day: dict[date, list[Member]] = {}
    for day, member in members:
        on_day.setdefault(day, []).append(member)
    return {
        (day, each.group_type, each.group_name): _figure(each)
        for day, found in on_day.items()
        for each in group_figures(
            found, {member: seconds.get((day, member.site), Seconds()) for member in found}
        )
    }


def _member(member: Member, sites: Mapping[str, Figure], targets: Targets) -> MemberRow:
    figure = sites.get(member.site)
    return MemberRow(
        member.site,
        site_page(member.site) if figure else "",
        member.weight,
        total_of(figure, targets) if figure else None,
    )


def _figure(group: GroupFigure) -> Figure:
    return Figure(
        (group.group_type, group.group_name),
        group.availability,
        group.reliability,
        sites_expected=group.sites_expected,
        sites_known=group.sites_known,
    )
