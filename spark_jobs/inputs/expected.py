"""Who is expected on each day, and which downtimes cover it: small tables, so plain Python."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

from sam_pipeline.spark_jobs.inputs.announced import (
    MONITORING_HOST,
    Downtime,
    Exclusion,
    Membership,
)
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, GROUP, METRIC, SITE

NO_WORDS = ("n", "no", "false", "f", "0")


@dataclass(frozen=True, order=True)
class Endpoint:
    """A service flavour on a host, at a site."""

    site: str
    service_flavour: str
    host_name: str


class Cover(NamedTuple):
    """A time [start, end) of a day in which something is covered, whatever its results say.

    An endpoint is in announced downtime, a metric or a site is excluded: by the level. Names that
    the level doesn't have are ''.
    """

    level: str
    site: str
    service_flavour: str
    host_name: str
    metric_name: str
    start: int
    end: int


@dataclass(frozen=True)
class DayExpectation:
    """What is expected on a day: endpoints and covers, in order.

    `downtimes` and `exclusions` are those that touch the report's part of the day, the ones that
    don't count, too. An excluded monitoring host touches every day whose results it may have made.
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
        return _digest(each for each in self.covers if each.level == ENDPOINT)

    @property
    def exclusions_digest(self) -> str:
        hosts = {
            (each.monitoring_host, each.start, each.end)
            for each in self.exclusions
            if each.kind == MONITORING_HOST
        }
        return _digest([*(each for each in self.covers if each.level != ENDPOINT), *sorted(hosts)])

    def instances(self, profile: Profile) -> int:
        """How many metric instances are expected (availability rule 2)."""
        return sum(len(profile.metrics_of(each.service_flavour)) for each in self.endpoints)


def expect(
    day: date,
    memberships: Iterable[Membership],
    downtimes: Iterable[Downtime],
    exclusions: Iterable[Exclusion],
    profile: Profile,
    now: int,
) -> DayExpectation:
    """What the topology, the announced downtimes and the exclusions say about a day."""
    start = day_start(day)
    end = min(start + DAY_S, now)
    endpoints = _endpoints(start, memberships, profile)
    places = _Places(endpoints, profile)
    announced = [each for each in downtimes if each.touches(start, end)]
    near = [each for each in announced if places.endpoints_of(each)]
    counting = [each for each in near if profile.counts(each.classification, each.severity)]
    excluded = [each for each in exclusions if each.start < end and _last_touched(each) > start]
    covers = sorted(
        {
            *(cover for each in counting for cover in places.downtime(each)),
            *(cover for each in excluded for cover in places.exclusion(each)),
        }
    )
    clipped = [
        each._replace(start=max(each.start, start), end=min(each.end, end)) for each in covers
    ]
    return DayExpectation(day, endpoints, [c for c in clipped if c.start < c.end], near, excluded)


class _Places:
    """The report's endpoints of a day, found by site and by host."""

    def __init__(self, endpoints: Sequence[Endpoint], profile: Profile) -> None:
        self._all = endpoints
        self._profile = profile
        self._by_site: dict[str, list[Endpoint]] = {}
        self._by_host: dict[str, list[Endpoint]] = {}
        for each in endpoints:
            self._by_site.setdefault(each.site, []).append(each)
            self._by_host.setdefault(each.host_name, []).append(each)

    def endpoints_of(self, downtime: Downtime) -> list[Endpoint]:
        near = self._near(downtime.site, downtime.host_name)
        return [e for e in near if downtime.covers(e.site, e.service_flavour, e.host_name)]

    def downtime(self, downtime: Downtime) -> Iterator[Cover]:
        for each in self.endpoints_of(downtime):
            yield _cover(ENDPOINT, each, "", downtime.start, downtime.end)

    def exclusion(self, exclusion: Exclusion) -> Iterator[Cover]:
        """What a metric's or a site's exclusion covers; a monitoring host's covers nothing."""
        if exclusion.kind == GROUP and self._has_functions(exclusion.site):
            yield Cover(SITE, exclusion.site, "", "", "", exclusion.start, exclusion.end)
        if exclusion.kind == METRIC:
            for each in self._near(exclusion.site, exclusion.host_name):
                if exclusion.covers(each.site, each.service_flavour, each.host_name) and (
                    exclusion.metric_name in self._profile.metrics_of(each.service_flavour)
                ):
                    yield _cover(
                        METRIC, each, exclusion.metric_name, exclusion.start, exclusion.end
                    )

    def _has_functions(self, site: str) -> bool:
        """Whether the site is in the report (rule 9): its flavours may serve no function."""
        found = self._by_site.get(site, ())
        return any(self._profile.functions_of(each.service_flavour) for each in found)

    def _near(self, site: str, host_name: str) -> Sequence[Endpoint]:
        if host_name:
            return self._by_host.get(host_name, ())
        return self._by_site.get(site, ()) if site else self._all


def _cover(level: str, endpoint: Endpoint, metric_name: str, start: int, end: int) -> Cover:
    names = (endpoint.site, endpoint.service_flavour, endpoint.host_name)
    return Cover(level, *names, metric_name, start, end)


def _last_touched(exclusion: Exclusion) -> int:
    """The end of the time whose states it may change."""
    # A result that does not exist is not carried to the next day either.
    return exclusion.end + 1 + DAY_S if exclusion.kind == MONITORING_HOST else exclusion.end


def _endpoints(at: int, memberships: Iterable[Membership], profile: Profile) -> list[Endpoint]:
    """Of several rows of one (site, host, flavour, VO) that are valid, the newest governs."""
    valid = [each for each in memberships if each.is_valid(at) and _names_vo(each, profile)]
    governing: Mapping[tuple[Endpoint, str], Membership] = {
        (_endpoint(each), each.vo): each for each in sorted(valid, key=lambda m: m.valid_from)
    }
    return sorted(
        {
            endpoint
            for (endpoint, _), each in governing.items()
            if _yes(each.production)
            and _yes(each.monitored)
            and profile.metrics_of(endpoint.service_flavour)
        }
    )


def _endpoint(membership: Membership) -> Endpoint:
    return Endpoint(membership.site, membership.service_flavour, membership.host_name)


def _names_vo(membership: Membership, profile: Profile) -> bool:
    """Whether it is of the profile's VO, or of no VO in particular."""
    return profile.vo is None or membership.vo in ("", profile.vo)


def _yes(flag: str | None) -> bool:
    return flag is None or flag.strip().lower() not in NO_WORDS


def _digest(items: Iterable[object]) -> str:
    """Changes when the ordered items do."""
    digest = hashlib.sha256()
    for item in items:
        digest.update(repr(item).encode() + b"\n")
    return digest.hexdigest()
