"""The targets of each site and group over a period."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.profiles.file import recorded_profile
from sam_pipeline.spark_jobs.profiles.profile import Group, Profile
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.figures import Targets
from sam_pipeline.spark_jobs.rules.levels import GROUP

_NEWEST_PROFILE = (
    "SELECT profile FROM report_run WHERE report = :report AND state = 'published'"
    " AND day BETWEEN :first AND :last ORDER BY day DESC LIMIT 1"
)
_MEMBERSHIPS = (
    "SELECT site, group_type, group_name, max(day) FROM report_group_site"
    " WHERE report = :report AND day BETWEEN :first AND :last"
    " GROUP BY site, group_type, group_name"
)


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


def period_targets(
    connection: Connection, report: str, period: Period, profile: Profile | None = None
) -> PeriodTargets:
    """The targets over a period with at least one published day, or those of another `profile`.

    A site has the targets of the groups that it belonged to on its newest day in any of them.
    """
    parameters = {"report": report, **period.bounds}
    if profile is None:
        document = connection.execute(text(_NEWEST_PROFILE), parameters).scalar_one()
        profile = recorded_profile(document)
    if not profile.targets_of_groups:
        return PeriodTargets(profile)
    memberships: dict[str, dict[Group, str]] = {}
    for site, group_type, name, day in connection.execute(text(_MEMBERSHIPS), parameters):
        memberships.setdefault(site, {})[group_type, name] = str(day)
    return PeriodTargets(
        profile,
        {
            site: [group for group, day in newest.items() if day == max(newest.values())]
            for site, newest in memberships.items()
        },
    )
