"""The figures of a period, added up over its days, then divided once; and their targets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.profiles.file import recorded_profile
from sam_pipeline.spark_jobs.profiles.profile import Group, Profile
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.figures import (
    Figure,
    Member,
    MemberDay,
    Targets,
    figure_of,
    group_figures,
)
from sam_pipeline.spark_jobs.rules.levels import GROUP, SITE
from sam_pipeline.spark_jobs.rules.seconds import Seconds
from sam_pipeline.spark_jobs.runs.published import (
    RUNS,
    DayFigure,
    Names,
    day_figures,
    day_members,
    totals,
    until_of,
)

MET, MISSED, NO_DATA = "met", "missed", "no data"
"""A figure compared with its targets, in words."""

_NEWEST_PROFILE = (
    "SELECT profile FROM report_run WHERE report = :report AND {}"
    " AND day BETWEEN :first AND :last ORDER BY day DESC LIMIT 1"
)


def period_figures(
    connection: Connection,
    report: str,
    level: str,
    period: Period,
    site: str | None = None,
    revision: int | None = None,
) -> list[Figure]:
    """The figures of a level over the period (availability rules 12 and 13).

    They are those of all sites or of one; groups are always all of them. They are the published
    ones, or those of a revision of the month in which the period lies.
    """
    if level == GROUP:
        sites = list(day_figures(connection, report, SITE, period, revision=revision))
        members = day_members(connection, report, period, revision)
        return group_figures(member_days(members, sites))
    if revision is None:
        figures = totals(connection, report, level, period, site)
    else:
        by_names: dict[Names, list[DayFigure]] = {}
        for figure in day_figures(connection, report, level, period, site, revision):
            by_names.setdefault(figure.names, []).append(figure)
        figures = map(added_up, by_names.values())
    # In the order of Python: that of a database depends on its collation.
    return sorted(figures, key=lambda figure: figure.names)


def added_up(days: Sequence[DayFigure]) -> Figure:
    """The figure over the days of one site, function, service or endpoint."""
    seconds = sum((day.seconds for day in days), Seconds())
    return figure_of(days[0].names, seconds, len(days), until_of(days))


def member_days(
    members: Iterable[tuple[date, Member]], sites: Iterable[DayFigure]
) -> list[MemberDay]:
    """The days of the members of groups, with the seconds of the sites on these days."""
    seconds_on = {(figure.day, figure.names[0]): figure.seconds for figure in sites}
    return [MemberDay(day, member, seconds_on[day, member.site]) for day, member in members]


@dataclass(frozen=True)
class PeriodTargets:
    """The targets of the newest day's profile, and the groups of each site that decide them."""

    profile: Profile
    groups_of: Mapping[str, Collection[Group]] = field(default_factory=dict)

    @property
    def everywhere(self) -> Targets:
        """The targets of all sites and groups that have none of their own."""
        return self.profile.targets

    def of_site(self, site: str) -> Targets:
        return self.profile.targets_of_site(site, self.groups_of.get(site, ()))

    def of(self, level: str, names: Sequence[str]) -> Targets:
        """The targets of a thing of a level: of a group, or of the site that it belongs to."""
        if level == GROUP:
            group_type, name = names
            return self.profile.targets_of_group((group_type, name))
        return self.of_site(names[0])

    def verdict(self, level: str, figure: Figure | None) -> str:
        """MET, MISSED, or NO_DATA if there is no figure or it has no value."""
        if figure is None or figure.availability is None:
            return NO_DATA
        return MISSED if figure.misses(self.of(level, figure.names)) else MET


def period_targets(
    connection: Connection,
    report: str,
    period: Period,
    profile: Profile | None = None,
    revision: int | None = None,
) -> PeriodTargets:
    """The targets over a period with at least one published day, or those of another `profile`.

    A site has the targets of the groups that it belonged to on its newest day in any of them.
    """
    if profile is None:
        statement = text(_NEWEST_PROFILE.format(RUNS[revision is not None]))
        parameters = {"report": report, **period.bounds, "revision": revision}
        profile = recorded_profile(connection.execute(statement, parameters).scalar_one())
    if not profile.targets_of_groups:
        return PeriodTargets(profile)
    memberships: dict[str, dict[Group, date]] = {}
    for day, member in day_members(connection, report, period, revision):
        memberships.setdefault(member.site, {})[member.group_type, member.group_name] = day
    return PeriodTargets(
        profile,
        {
            site: [group for group, day in newest.items() if day == max(newest.values())]
            for site, newest in memberships.items()
        },
    )
