"""Availability by brute force: one state for each second of the day, then count.

Written from the rules alone (`rule N` is that of the availability document), without the jobs it
judges, and without a thought for speed beyond what `bytes` gives: what it says must be obvious.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from functools import cache, reduce

from tests.worlds.model import (
    Downtime,
    Endpoint,
    Exclusion,
    Profile,
    Result,
    SiteGroup,
    Threshold,
    World,
    midnight,
)

DAY_S = 86_400
# Rule 10. EXCLUDED is in neither: every fold skips it.
AND = ("OK", "WARNING", "UNKNOWN", "MISSING", "DOWNTIME", "CRITICAL")
OR = ("MISSING", "DOWNTIME", "UNKNOWN", "CRITICAL", "WARNING", "OK")
STATUSES = (*AND, "EXCLUDED")
UP = ("OK", "WARNING")
NOT_KNOWN = ("UNKNOWN", "MISSING", "EXCLUDED")
# A state is one bit of a byte, EXCLUDED is none: those of several children add up to a set.
CODE = {**{status: 1 << place for place, status in enumerate(AND)}, "EXCLUDED": 0}
STATUS_OF = {code: status for status, code in CODE.items()}

States = bytes
"""One code per second of the day."""

Table = tuple[tuple[str, str, str], ...]
"""An operation as triples (a, b, result)."""

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
        return _percent(self._sum(UP), self._sum(STATUSES) - self._sum(NOT_KNOWN))

    @property
    def exact_reliability(self) -> Fraction | None:
        known = self._sum(STATUSES) - self._sum(NOT_KNOWN)
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
class Trend:
    """Rule 14: how often the state changed on a day, when first and when last."""

    changes: int
    first_change: datetime | None
    last_change: datetime | None


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
        """By the level's name: metrics, endpoints, services, functions or sites."""
        states: Mapping[Key, States] = getattr(self, level)
        return {key: figures_of(value) for key, value in states.items()}

    def timelines(self, level: str) -> dict[Key, tuple[Segment, ...]]:
        states: Mapping[Key, States] = getattr(self, level)
        return {key: segments(value, self.day) for key, value in states.items()}


def day_report(
    world: World, profile: Profile, day: date, until: datetime | None = None
) -> DayReport:
    """What a report on `world` must say about one day; `until` ends a day that is still open."""
    seconds = DAY_S if until is None else second_of(until, day)
    found = counting_results(world, profile)
    expected = _expected_endpoints(world.endpoints, profile, day)
    metrics: dict[Key, States] = {}
    for site, flavour, host in expected:
        for metric in profile.flavours[flavour].metrics:
            results = found.get((host, flavour, metric), ())
            states = _metric_states(results, _validity(profile, metric), day)
            key = (site, flavour, host, metric)
            metrics[key] = _with_exclusions(states, key, world.exclusions, day)[:seconds]
    in_force = _downtimes_in_force(world.downtimes, profile)
    operations = {"AND": ranked(AND), "OR": ranked(OR), **profile.operations}

    def folded(operation: str, children: Sequence[States]) -> States:
        return fold(operations[operation], children)

    endpoints = {
        key: _with_downtimes(
            folded(profile.metrics_operation, _children(metrics, key)), in_force, key, day
        )
        for key in expected
    }
    services = _services(endpoints, profile, folded)
    functions = _functions(services, profile, folded)
    sites: dict[Key, States] = {}
    for site in sorted({site for site, _ in functions}):
        states = folded(profile.functions_operation, _children(functions, (site,)))
        sites[site,] = _with_exclusions(states, (site,), world.exclusions, day)
    groups = _groups(world.site_groups, sites, day)
    return DayReport(day, metrics, endpoints, services, functions, sites, groups)


def period(figures: Iterable[Figures]) -> Figures:
    """Rule 12: sum the seconds, then divide."""
    total = dict.fromkeys(STATUSES, 0)
    for one in figures:
        for status, seconds in one.seconds.items():
            total[status] += seconds
    return Figures(total)


def ranked(order: Sequence[str]) -> Table:
    """Rule 10: of two statuses the later in the order."""
    return tuple((a, b, max(a, b, key=order.index)) for a in order for b in order)


def fold(operation: Table, children: Sequence[States]) -> States:
    """Rules 7 and 10, second by second: the operation answers the set of the children's states."""
    present = 0
    for states in children:
        present |= int.from_bytes(states)
    return present.to_bytes(len(children[0])).translate(_answers(operation))


@cache
def _answers(operation: Table) -> bytes:
    """The code of the result for each set of codes; of none at all it is EXCLUDED."""
    result = {(a, b): r for one, other, r in operation for a, b in ((one, other), (other, one))}
    answers = bytearray(256)
    for present in range(1, 1 << len(AND)):
        children = [status for status in AND if CODE[status] & present]
        answers[present] = CODE[reduce(lambda a, b: result[a, b], children)]
    return bytes(answers)


def figures_of(states: States) -> Figures:
    seconds = dict.fromkeys(STATUSES, 0)
    for status, length in _runs(states):
        seconds[status] += length
    return Figures(seconds)


def segments(states: States, day: date) -> tuple[Segment, ...]:
    """Neighbours of one status merged."""
    found = []
    at = midnight(day)
    for status, length in _runs(states):
        end = at + timedelta(seconds=length)
        found.append(Segment(at, end, status))
        at = end
    return tuple(found)


def trend(timeline: Sequence[Segment]) -> Trend:
    changes = [segment.start for segment in timeline[1:]]
    return Trend(len(changes), min(changes, default=None), max(changes, default=None))


_RUN = re.compile(b"|".join(re.escape(bytes([code])) + b"+" for code in STATUS_OF), re.DOTALL)


def _runs(states: States) -> Iterator[tuple[str, int]]:
    """(status, seconds) as long as it stays the same."""
    for run in _RUN.finditer(states):
        yield STATUS_OF[states[run.start()]], run.end() - run.start()


def second_of(moment: datetime, day: date) -> int:
    """The second of the day: below 0 before it, from 86 400 on after it."""
    return int((moment - midnight(day)).total_seconds())


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


def counting_results(world: World, profile: Profile) -> dict[Key, list[tuple[datetime, str]]]:
    """Of each (host, flavour, metric): when it was measured and what is then its status."""
    found: dict[Key, list[tuple[datetime, str]]] = {}
    for result in _kept(world.results):
        if (
            profile.vo in (None, result.vo)
            and profile.fqan in (None, result.fqan)
            and not _is_dropped(result, world.exclusions)
        ):
            key = (result.host, result.flavour, result.metric)
            found.setdefault(key, []).append((result.measured_at, judged(result, profile)))
    return found


def _kept(results: Iterable[Result]) -> list[Result]:
    """Of two copies of one run of a probe the database keeps the worse, whole."""
    kept: dict[tuple[object, ...], Result] = {}
    for each in sorted(results, key=lambda result: AND.index(result.status)):
        run = (each.host, each.flavour, each.metric, each.vo, each.fqan, each.gathered_at)
        kept[*run, each.measured_at] = each
    return list(kept.values())


def judged(result: Result, profile: Profile) -> str:
    """Rule 6: of the rules that name a label of the result the most specific speaks for it."""
    values = performance_values(result.performance_data)
    speaking: dict[str, Threshold] = {}
    for rule in sorted(profile.thresholds, key=lambda rule: (rule.host != "", rule.flavour != "")):
        if (
            rule.metric == result.metric
            and rule.host in ("", result.host)
            and rule.flavour in ("", result.flavour)
        ):
            speaking[rule.label] = rule
    rules = [(rule, values[label]) for label, rule in speaking.items() if label in values]
    if any(rule.critical and is_outside(rule.critical, value) for rule, value in rules):
        return "CRITICAL"
    if any(rule.warning and is_outside(rule.warning, value) for rule, value in rules):
        return "WARNING"
    return result.status


def performance_values(performance_data: str) -> dict[str, Fraction]:
    """The numbers by label, without units: `time=2.5s;;; 'free space'=10%`."""
    found = re.findall(r"(?:'([^']+)'|(\S+?))=([-+]?[0-9.]+)\S*", performance_data)
    return {quoted or plain: Fraction(number) for quoted, plain, number in found}


def is_outside(limits: str, value: Fraction) -> bool:
    """Whether a value is outside `10` (0 to 10), `10:`, `~:10`, `10:20`, or inside `@10:20`."""
    low, colon, high = limits.removeprefix("@").partition(":")
    if not colon:
        low, high = "0", low
    is_inside = (low == "~" or Fraction(low) <= value) and (not high or value <= Fraction(high))
    return is_inside if limits.startswith("@") else not is_inside


def _is_dropped(result: Result, exclusions: Iterable[Exclusion]) -> bool:
    """Rule 7: what an excluded monitoring host measured does not exist; both ends included."""
    return any(
        each.kind == "monitoring-host"
        and each.monitoring_host == result.monitoring_host
        and each.start <= result.measured_at <= each.end
        for each in exclusions
    )


def _metric_states(
    results: Iterable[tuple[datetime, str]], validity_s: int | None, day: date
) -> States:
    """Rules 3, 4 and 5: each result paints over all later seconds, the worse of a moment last."""
    states = bytearray([CODE["MISSING"]]) * DAY_S
    found = [(second_of(measured_at, day), CODE[status]) for measured_at, status in results]
    for second, code in sorted(found):
        if second >= -DAY_S:
            _paint(states, second, DAY_S, code)
            if validity_s is not None:
                _paint(states, second + validity_s, DAY_S, CODE["MISSING"])
    return bytes(states)


def _validity(profile: Profile, metric: str) -> int | None:
    return profile.validity_of.get(metric, profile.validity_s)


def _paint(states: bytearray, first: int, last: int, code: int) -> None:
    """The seconds [first, last), as far as they are in the day, get the code."""
    first, last = (min(max(second, 0), len(states)) for second in (first, last))
    states[first:last] = bytes([code]) * (last - first)


def _with_exclusions(
    states: States, key: Key, exclusions: Iterable[Exclusion], day: date
) -> States:
    """Rule 7: a metric (site, flavour, host, metric) is EXCLUDED, a group (site,) UNKNOWN."""
    painted = bytearray(states)
    for each in exclusions:
        if each.kind == "group" and key == (each.site,):
            code = CODE["UNKNOWN"]
        elif each.kind == "metric" and len(key) == 4 and _matches(_selectors(each), key):
            code = CODE["EXCLUDED"]
        else:
            continue
        _paint(painted, second_of(each.start, day), second_of(each.end, day), code)
    return bytes(painted)


def _selectors(exclusion: Exclusion) -> Key:
    return (exclusion.site, exclusion.flavour, exclusion.host, exclusion.metric)


def _matches(selectors: Key, key: Key) -> bool:
    """An absent selector ('') means any."""
    return all(wanted in ("", name) for wanted, name in zip(selectors, key, strict=True))


def _downtimes_in_force(downtimes: Iterable[Downtime], profile: Profile) -> list[Downtime]:
    """Rule 8: the newest announcement of each, if it is of a kind that counts."""
    newest: dict[tuple[object, ...], Downtime] = {}
    for each in sorted(downtimes, key=lambda downtime: downtime.announced_at):
        name = each.downtime_id or each.start  # without an id its start tells it from others
        newest[name, each.site, each.host, each.flavour] = each
    return [
        downtime
        for downtime in newest.values()
        if f"{downtime.classification}/{downtime.severity}" in profile.downtimes
    ]


def _with_downtimes(
    states: States, downtimes: Iterable[Downtime], endpoint: Key, day: date
) -> States:
    painted = bytearray(states)
    for each in downtimes:
        if _matches((each.site, each.flavour, each.host), endpoint):
            _paint(painted, second_of(each.start, day), second_of(each.end, day), CODE["DOWNTIME"])
    return bytes(painted)


Folding = Callable[[str, Sequence[States]], States]
"""The operation's name and the children."""


def _services(
    endpoints: Mapping[Key, States], profile: Profile, folded: Folding
) -> dict[Key, States]:
    """Rule 9: a flavour of a site."""
    keys = sorted({key[:2] for key in endpoints})
    return {
        key: folded(profile.flavours[key[1]].endpoints_operation, _children(endpoints, key))
        for key in keys
    }


def _functions(
    services: Mapping[Key, States], profile: Profile, folded: Folding
) -> dict[Key, States]:
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
                functions[site, name] = folded(function.flavours_operation, members)
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
