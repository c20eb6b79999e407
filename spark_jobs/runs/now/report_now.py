"""Reads what a report needs to fold the sites as they are now."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

from sam_pipeline.schema.program.wording import did_you_mean_or_list
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.inputs.announced import (
    Announced,
    Membership,
    downtimes,
    exclusions,
    members,
    memberships,
)
from sam_pipeline.spark_jobs.inputs.expected import expect
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period, moment
from sam_pipeline.spark_jobs.runs.now.folding import SiteFolded, fold_now, worst_first
from sam_pipeline.spark_jobs.runs.now.newest import read_newest


def read_sites_folded(
    connection: Connection, profile: Profile, now: int, site: str | None = None
) -> list[SiteFolded]:
    """The sites of a report as it folds them now, the worst first; or only one site.

    Only the one site has the summaries of its results.

    Raises:
        ReportUsage: the site was never in the topology.
        MixedVOs: several VOs measured one instance, and the profile names none.
    """
    day = moment(now).date()
    today = Period(day, day)
    topology = memberships(connection, today) if site is None else of_site(connection, today, site)
    announced = Announced(
        topology,
        downtimes(connection, today),
        exclusions(connection, today.with_days_before(profile.look_back)),
        members(connection, day),
    )
    # A run at `now` would cover only the seconds before.
    expected = expect(day, announced, profile, now + 1)
    hosts = None if site is None else sorted({row.host_name for row in topology})
    newest = read_newest(connection, profile, announced.exclusions, now, hosts)
    return worst_first(fold_now(profile, expected, newest, now))


def of_site(connection: Connection, period: Period, site: str) -> Sequence[Membership]:
    """The topology of a site, which may have been closed.

    Raises:
        ReportUsage: the site was never in the topology.
    """
    topology = memberships(connection, period, site)
    if not topology:
        known = connection.scalars(text("SELECT DISTINCT site FROM report_topology")).all()
        if site not in known:
            raise ReportUsage(f"no site {site}: {did_you_mean_or_list(site, known)}")
    return topology
