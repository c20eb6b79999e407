"""Who is expected on each day, and which downtimes cover it: small tables, so plain Python."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from spark_jobs.database_inputs import Downtime, Membership
from spark_jobs.days import DAY_S, day_start
from spark_jobs.profile import Profile

NO_WORDS = ("n", "no", "false", "f", "0")


@dataclass(frozen=True, order=True)
class Endpoint:
    """A service flavour on a host, at a site."""

    site: str
    service_flavour: str
    host_name: str


@dataclass(frozen=True, order=True)
class Span:
    """A downtime of an endpoint within a day: seconds [start, end)."""

    endpoint: Endpoint
    start: int
    end: int


@dataclass(frozen=True)
class DayExpectation:
    """The endpoints of a day and the downtimes that count on it, both in order."""

    day: date
    endpoints: Sequence[Endpoint]
    spans: Sequence[Span]

    @property
    def topology_digest(self) -> str:
        return _digest(self.endpoints)

    @property
    def downtimes_digest(self) -> str:
        return _digest(self.spans)

    def instances(self, profile: Profile) -> int:
        """How many metric instances are expected (availability rule 2)."""
        return sum(len(profile.metrics_of(each.service_flavour)) for each in self.endpoints)


def expect(
    day: date,
    memberships: Iterable[Membership],
    downtimes: Iterable[Downtime],
    profile: Profile,
    now: int,
) -> DayExpectation:
    """What the topology and the announced downtimes say about a day."""
    endpoints = _endpoints(day_start(day), memberships, profile)
    end = min(day_start(day) + DAY_S, now)
    counting = [each for each in downtimes if profile.counts(each.classification, each.severity)]
    return DayExpectation(day, endpoints, sorted(_spans(endpoints, counting, day_start(day), end)))


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


def _spans(
    endpoints: Sequence[Endpoint], downtimes: Iterable[Downtime], start: int, end: int
) -> Iterator[Span]:
    for downtime in downtimes:
        first, last = max(downtime.start, start), min(downtime.end, end)
        if first < last:
            for each in endpoints:
                if downtime.covers(each.site, each.service_flavour, each.host_name):
                    yield Span(each, first, last)


def _digest(items: Iterable[object]) -> str:
    """Changes when the ordered items do."""
    digest = hashlib.sha256()
    for item in items:
        digest.update(repr(item).encode() + b"\n")
    return digest.hexdigest()
