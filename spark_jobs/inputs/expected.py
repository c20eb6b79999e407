"""Which endpoints and metrics are expected on each day, and what covers them.

The input is small, so this is plain Python.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import NamedTuple

from sam_pipeline.spark_jobs.inputs.announced import (
    MONITORING_HOST,
    Announced,
    Downtime,
    Exclusion,
    Membership,
)
from sam_pipeline.spark_jobs.profiles.profile import Group, Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, METRIC, SITE

_NO = ("n", "no", "false", "f", "0")


class Endpoint(NamedTuple):
    """A service flavour on a host, at a site."""

    site: str
    service_flavour: str
    host_name: str


class Cover(NamedTuple):
    """A time [start, end) within a day that overrides the status of an endpoint, metric or site.

    An endpoint is in announced downtime; a metric or a site is excluded. Names that `level` does
    not have are "".
    """

    level: str
    site: str
    service_flavour: str
    host_name: str
    metric_name: str
    start: int
    end: int


class EndpointsByName:
    """Finds endpoints by their names, which is faster than looking at all of them."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints
        self.of_site: dict[str, list[Endpoint]] = defaultdict(list)
        self._of_host: dict[str, list[Endpoint]] = defaultdict(list)
        for endpoint in endpoints:
            self.of_site[endpoint.site].append(endpoint)
            self._of_host[endpoint.host_name].append(endpoint)

    def covered(self, announcement: Downtime | Exclusion) -> list[Endpoint]:
        """The endpoints to which a downtime or an exclusion applies."""
        candidates = self._endpoints
        if announcement.host_name:
            candidates = self._of_host.get(announcement.host_name, ())
        elif announcement.site:
            by_grid_site = map(Endpoint._make, announcement.by_grid_site)
            candidates = [*self.of_site.get(announcement.site, ()), *by_grid_site]
        return [endpoint for endpoint in candidates if announcement.covers(*endpoint)]


@dataclass(frozen=True)
class DayExpectation:
    """The endpoints that are expected on a day, and the covers, both sorted.

    `downtimes` and `exclusions` are all those that overlap the report's part of the day, even if
    they change nothing. The exclusion of a monitoring host belongs to every day whose results the
    host may have sent.
    """

    day: date
    endpoints: Sequence[Endpoint]
    covers: Sequence[Cover]
    downtimes: Sequence[Downtime]
    exclusions: Sequence[Exclusion]

    @property
    def topology_digest(self) -> str:
        return _digest(self.endpoints)

    @property
    def downtimes_digest(self) -> str:
        return _digest(cover for cover in self.covers if cover.level == ENDPOINT)

    @property
    def exclusions_digest(self) -> str:
        hosts = {
            (exclusion.monitoring_host, exclusion.start, exclusion.end)
            for exclusion in self.exclusions
            if exclusion.kind == MONITORING_HOST
        }
        return _digest([*(c for c in self.covers if c.level != ENDPOINT), *sorted(hosts)])

    def instances(self, profile: Profile) -> int:
        """The number of metric instances that are expected (availability rule 2)."""
        return sum(len(profile.metrics_of(e.service_flavour)) for e in self.endpoints)


def expect(day: date, announced: Announced, profile: Profile, now: int) -> DayExpectation:
    """The endpoints that a profile expects on a day, and what covers them until `now`."""
    start = day_start(day)
    end = min(start + DAY_S, now)
    read_s = profile.look_back * DAY_S + 1  # an exclusion also covers the second of its end
    grid_sites = _endpoints(start, announced, profile)
    endpoints = sorted(grid_sites)
    by_name = EndpointsByName(endpoints)
    of_grid_site: dict[str, list[Endpoint]] = defaultdict(list)
    for endpoint in endpoints:
        for name in grid_sites[endpoint] - {"", endpoint.site}:
            of_grid_site[name].append(endpoint)
    covers: set[Cover] = set()
    overlapping = []
    for downtime in announced.downtimes:
        if downtime.touches(start, end):
            by_grid_site = tuple(
                endpoint
                for endpoint in of_grid_site.get(downtime.site, ())
                if downtime.covers(downtime.site, *endpoint[1:])
            )
            found = replace(downtime, by_grid_site=by_grid_site) if by_grid_site else downtime
            if covered := by_name.covered(found):
                overlapping.append((found, covered))
    for downtime, covered in overlapping:
        for part in downtime.counted(profile):
            covers |= {Cover(ENDPOINT, *e, "", *part) for e in covered}
    excluded = [
        exclusion
        for exclusion in announced.exclusions
        # A result that does not exist is not carried over to the days after it either.
        if exclusion.touches(start - (read_s if exclusion.kind == MONITORING_HOST else 0), end)
    ]
    for exclusion in excluded:
        name, times = exclusion.metric_name, (exclusion.start, exclusion.end)
        if exclusion.kind == METRIC:
            covers |= {
                Cover(METRIC, *endpoint, name, *times)
                for endpoint in by_name.covered(exclusion)
                if name in profile.metrics_of(endpoint.service_flavour)
            }
        # A site is in the report only if its flavours serve a function (rule 9).
        elif exclusion.kind == SITE and any(
            profile.functions_of(e.service_flavour) for e in by_name.of_site.get(exclusion.site, ())
        ):
            covers.add(Cover(SITE, exclusion.site, "", "", "", *times))
    clipped = [
        cover._replace(start=max(cover.start, start), end=min(cover.end, end))
        for cover in sorted(covers)
    ]
    return DayExpectation(
        day,
        endpoints,
        [cover for cover in clipped if cover.start < cover.end],
        [downtime for downtime, _ in overlapping],
        excluded,
    )


def _endpoints(at: int, announced: Announced, profile: Profile) -> dict[Endpoint, set[str]]:
    """The endpoints of a profile at a time, with the grid sites that the VOs name for them.

    A row counts if it has no VO, or that of the profile; without a VO in the profile, every row
    counts. Of several valid rows for one site, flavour, host and VO the newest counts.
    """
    groups_of: dict[str, list[Group]] = defaultdict(list)
    for member in announced.members if profile.groups else ():
        groups_of[member.site].append((member.group_type, member.group_name))
    valid = [
        membership
        for membership in announced.memberships
        if membership.is_valid(at)
        and (profile.vo is None or membership.vo in ("", profile.vo))
        and profile.expects(membership.site, groups_of.get(membership.site, ()))
    ]
    newest: Mapping[tuple[Endpoint, str], Membership] = {
        (Endpoint(row.site, row.service_flavour, row.host_name), row.vo): row
        for row in sorted(valid, key=lambda row: row.valid_from)
    }
    grid_sites: dict[Endpoint, set[str]] = defaultdict(set)
    for (endpoint, _), membership in newest.items():
        flags = (membership.production, membership.monitored)
        if profile.metrics_of(endpoint.service_flavour) and all(
            flag is None or flag.strip().lower() not in _NO for flag in flags
        ):
            grid_sites[endpoint].add(membership.grid_site or "")
    return grid_sites


def _digest(items: Iterable[object]) -> str:
    digest = hashlib.sha256()
    for item in items:
        digest.update(repr(item).encode() + b"\n")
    return digest.hexdigest()
