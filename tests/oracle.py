"""Availability by brute force: one state for each second of the day, then count.

Written from the rules alone (`rule N` is that of the availability document), without the jobs it
judges, and without a thought for speed beyond what `bytes` gives: what it says must be obvious.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from itertools import groupby

from tests.world.model import Downtime, Endpoint, Profile, Result, SiteGroup, World, midnight

DAY_S = 86_400
# Rule 10. A state is a byte: its place in AND; `OR_RANK` maps it to its place in OR and back.
AND = ("OK", "WARNING", "UNKNOWN", "MISSING", "DOWNTIME", "CRITICAL")
OR = ("MISSING", "DOWNTIME", "UNKNOWN", "CRITICAL", "WARNING", "OK")
CODE = {status: code for code, status in enumerate(AND)}
TO_OR = bytes.maketrans(bytes(range(6)), bytes(OR.index(status) for status in AND))
FROM_OR = bytes.maketrans(bytes(range(6)), bytes(AND.index(status) for status in OR))
UP = ("OK", "WARNING")
NOT_KNOWN = ("UNKNOWN", "MISSING")

States = bytes
"""One code per second of the day."""

Key = tuple[str, ...]
"""(site, flavour, host) of an endpoint, (site, flavour), (site, function), (site,)."""


@dataclass(frozen=True)
class Figures:
    """Seconds per status, and what rule 11 makes of them."""

    seconds: Mapping[str, int]

    @property
    def availability(self) -> Decimal | None:
        return rounded(self.exact_availability)

    @property
    def reliability(self) -> Decimal | None:
        return rounded(self.exact_reliability)

    @property
    def exact_availability(self) -> Fraction | None:
        return _percent(self._sum(UP), self._sum(AND) - self._sum(NOT_KNOWN))

    @property
    def exact_reliability(self) -> Fraction | None:
        known = self._sum(AND) - self._sum(NOT_KNOWN)
        return _percent(self._sum(UP), known - self.seconds["DOWNTIME"])

    def _sum(self, statuses: Sequence[str]) -> int:
        return sum(self.seconds[status] for status in statuses)


@dataclass(frozen=True)
class GroupFigures:
    """Rule 13: the weighted mean of the sites that have a value, and how many those are."""

    availability: Decimal | None
    reliability: Decimal | None
    sites_expected: int
    sites_known: int


@dataclass(frozen=True)
class Segment:
    """A stretch of one status; times as in the report, the end of the day is the next midnight."""

    start: datetime
    end: datetime
    status: str


@dataclass(frozen=True)
class DayReport:
    """All levels of one day; `metrics` are keyed (site, flavour, host, metric)."""

    day: date
    metrics: Mapping[Key, States]
    endpoints: Mapping[Key, States]
    services: Mapping[Key, States]
    functions: Mapping[Key, States]
    sites: Mapping[Key, States]
    groups: Mapping[tuple[str, str], GroupFigures]

    def figures(self, level: str) -> dict[Key, Figures]:
        """By the level's name: endpoints, services, functions or sites."""
        states: Mapping[Key, States] = getattr(self, level)
        return {key: figures_of(value) for key, value in states.items()}

    def timelines(self, level: str) -> dict[Key, tuple[Segment, ...]]:
        states: Mapping[Key, States] = getattr(self, level)
        return {key: segments(value, self.day) for key, value in states.items()}


def day_report(
    world: World, profile: Profile, day: date, until: datetime | None = None
) -> DayReport:
    """What a report on `world` must say about one day; `until` ends a day that is still open."""
    seconds = DAY_S if until is None else int((until - midnight(day)).total_seconds())
    expected = _expected_endpoints(world.endpoints, profile, day)
    metrics = {
        (*key, metric): _metric_states(world.results, key, metric, profile, day)[:seconds]
        for key in expected
        for metric in profile.flavours[key[1]].metrics
    }
    in_force = _downtimes_in_force(world.downtimes, profile)
    endpoints = {
        key: _with_downtimes(
            fold(profile.metrics_operation, _children(metrics, key)), in_force, key, day
        )
        for key in expected
    }
    services = _services(endpoints, profile)
    functions = _functions(services, profile)
    sites: dict[Key, States] = {
        (site,): fold(profile.functions_operation, _children(functions, (site,)))
        for site in sorted({site for site, _ in functions})
    }
    groups = _groups(world.site_groups, sites, day)
    return DayReport(day, metrics, endpoints, services, functions, sites, groups)


def period(figures: Iterable[Figures]) -> Figures:
    """Rule 12: sum the seconds, then divide."""
    total = dict.fromkeys(AND, 0)
    for one in figures:
        for status, seconds in one.seconds.items():
            total[status] += seconds
    return Figures(total)


def fold(operation: str, children: Sequence[States]) -> States:
    """Rule 10, second by second."""
    if operation == "AND":
        return bytes(map(max, zip(*children, strict=True)))
    ranks = [states.translate(TO_OR) for states in children]
    return bytes(map(max, zip(*ranks, strict=True))).translate(FROM_OR)


def figures_of(states: States) -> Figures:
    return Figures({status: states.count(code) for status, code in CODE.items()})


def segments(states: States, day: date) -> tuple[Segment, ...]:
    """Neighbours of one status merged."""
    found = []
    at = midnight(day)
    for code, run in groupby(states):
        end = at + timedelta(seconds=len(list(run)))
        found.append(Segment(at, end, AND[code]))
        at = end
    return tuple(found)


def rounded(value: Fraction | None) -> Decimal | None:
    """Half up, five decimals."""
    if value is None:
        return None
    exact = Decimal(value.numerator) / Decimal(value.denominator)
    return exact.quantize(Decimal("0.00001"), ROUND_HALF_UP)


def _expected_endpoints(endpoints: Iterable[Endpoint], profile: Profile, day: date) -> list[Key]:
    """Rule 2, with the topology of the day's first moment; of several rows the latest governs."""
    moment = midnight(day)
    governing: dict[Key, Endpoint] = {}
    for row in sorted(endpoints, key=lambda row: row.valid_from):
        if row.valid_from <= moment and (row.valid_to is None or row.valid_to > moment):
            governing[row.site, row.flavour, row.host, row.vo] = row
    return sorted(
        {
            (row.site, row.flavour, row.host)
            for row in governing.values()
            if row.flavour in profile.flavours
            and (profile.vo is None or row.vo in ("", profile.vo))
            and row.production != "N"
            and row.monitored != "N"
        }
    )


def _metric_states(
    results: Iterable[Result], endpoint: Key, metric: str, profile: Profile, day: date
) -> States:
    """Rules 3 and 4: each result paints over all later seconds, the worse of a moment last."""
    _, flavour, host = endpoint
    start = midnight(day)
    mine = [
        (int((result.measured_at - start).total_seconds()), CODE[result.status])
        for result in results
        if (result.host, result.flavour, result.metric) == (host, flavour, metric)
        and (profile.vo is None or result.vo == profile.vo)
    ]
    states = bytearray([CODE["MISSING"]]) * DAY_S
    for second, code in sorted(mine):
        if -DAY_S <= second < DAY_S:
            first = max(second, 0)
            states[first:] = bytes([code]) * (DAY_S - first)
    return bytes(states)


def _downtimes_in_force(downtimes: Iterable[Downtime], profile: Profile) -> list[Downtime]:
    """Rule 8: the newest announcement of each, if it is of a kind that counts."""
    newest: dict[Key, Downtime] = {}
    for downtime in sorted(downtimes, key=lambda downtime: downtime.announced_at):
        newest[downtime.downtime_id, downtime.site, downtime.host, downtime.flavour] = downtime
    return [
        downtime
        for downtime in newest.values()
        if f"{downtime.classification}/{downtime.severity}" in profile.downtimes
    ]


def _with_downtimes(
    states: States, downtimes: Iterable[Downtime], endpoint: Key, day: date
) -> States:
    site, flavour, host = endpoint
    painted = bytearray(states)
    for downtime in downtimes:
        if (
            downtime.site in ("", site)
            and downtime.host in ("", host)
            and downtime.flavour in ("", flavour)
        ):
            first, last = (
                min(max(int((moment - midnight(day)).total_seconds()), 0), len(painted))
                for moment in (downtime.start, downtime.end)
            )
            painted[first:last] = bytes([CODE["DOWNTIME"]]) * (last - first)
    return bytes(painted)


def _services(endpoints: Mapping[Key, States], profile: Profile) -> dict[Key, States]:
    """Rule 9: a flavour of a site."""
    keys = sorted({key[:2] for key in endpoints})
    return {
        key: fold(profile.flavours[key[1]].endpoints_operation, _children(endpoints, key))
        for key in keys
    }


def _functions(services: Mapping[Key, States], profile: Profile) -> dict[Key, States]:
    """Rule 9: without functions in the profile, every flavour is one of its own name."""
    if not profile.functions:
        return dict(services)
    functions: dict[Key, States] = {}
    for site in sorted({key[0] for key in services}):
        for name, function in profile.functions.items():
            members = [
                states
                for (member_site, flavour), states in services.items()
                if member_site == site and flavour in function.flavours
            ]
            if members:
                functions[site, name] = fold(function.flavours_operation, members)
    return functions


def _groups(
    memberships: Iterable[SiteGroup], sites: Mapping[Key, States], day: date
) -> dict[tuple[str, str], GroupFigures]:
    moment = midnight(day)
    governing: dict[Key, SiteGroup] = {}
    for row in sorted(memberships, key=lambda row: row.valid_from):
        if row.valid_from <= moment and (row.valid_to is None or row.valid_to > moment):
            governing[row.group_type, row.group_name, row.site] = row
    names = sorted({(row.group_type, row.group_name) for row in governing.values()})
    return {
        name: _group_figures(
            [row for row in governing.values() if (row.group_type, row.group_name) == name],
            {site: figures_of(states) for (site,), states in sites.items()},
        )
        for name in names
    }


def _group_figures(rows: Sequence[SiteGroup], sites: Mapping[str, Figures]) -> GroupFigures:
    members = [(sites[row.site], (row.weight or 0) + 1) for row in rows if row.site in sites]
    availability = [(site.exact_availability, weight) for site, weight in members]
    reliability = [(site.exact_reliability, weight) for site, weight in members]
    return GroupFigures(
        availability=rounded(_weighted_mean(availability)),
        reliability=rounded(_weighted_mean(reliability)),
        sites_expected=len(rows),
        sites_known=sum(value is not None for value, _ in availability),
    )


def _weighted_mean(values: Iterable[tuple[Fraction | None, int]]) -> Fraction | None:
    defined = [(value, weight) for value, weight in values if value is not None]
    if not defined:
        return None
    return sum((value * weight for value, weight in defined), Fraction(0)) / sum(
        weight for _, weight in defined
    )


def _percent(part: int, whole: int) -> Fraction | None:
    return Fraction(100 * part, whole) if whole else None


def _children(states: Mapping[Key, States], parent: Key) -> list[States]:
    return [value for key, value in states.items() if key[: len(parent)] == parent]
