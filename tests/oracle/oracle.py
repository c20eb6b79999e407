"""Availability by brute force: one state for each second of the day, then counting.

Written only from the rules (`rule N` is that of the availability document) and independent of the
jobs that it checks. It is meant to be obviously right; it is only as fast as `bytes` make it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from functools import cache, reduce
from itertools import pairwise

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
# Rule 10. EXCLUDED is in neither order: every fold skips it.
AND = ("OK", "WARNING", "UNKNOWN", "MISSING", "DOWNTIME", "CRITICAL")
OR = ("MISSING", "DOWNTIME", "UNKNOWN", "CRITICAL", "WARNING", "OK")
STATUSES = (*AND, "EXCLUDED")
UP = ("OK", "WARNING")
NOT_KNOWN = ("UNKNOWN", "MISSING", "EXCLUDED")
# A state is one bit of a byte, EXCLUDED none, so that the states of several children form a set.
CODE = {**{status: 1 << bit for bit, status in enumerate(AND)}, "EXCLUDED": 0}
STATUS_OF = {code: status for status, code in CODE.items()}

States = bytes
"""One code per second of the day."""

Table = tuple[tuple[str, str, str], ...]
"""An operation as triples (a, b, result)."""

Key = tuple[str, ...]
"""(site, flavour, host) of an endpoint, (site, flavour), (site, function), (site,)."""


@dataclass(frozen=True)
class Figures:
    """Seconds per status, and the percentages of rule 11."""

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
class Membership:
    """A site that a report expects in a group on a day, the weight that counts, and its figures."""

    group: tuple[str, str]
    site: str
    weight: int
    figures: Figures


@dataclass(frozen=True)
class GroupFigures:
    """Rule 13: the weighted mean of the sites that have a value, and their number."""

    availability: Decimal | None
    reliability: Decimal | None
    sites_expected: int
    sites_known: int


@dataclass(frozen=True)
class Segment:
    """A stretch of one status; the last one of a day ends at the next midnight."""

    start: datetime
    end: datetime
    status: str


@dataclass(frozen=True)
class Trend:
    """Rule 14: the number of changes on a day, and the times of the first and the last."""

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
    memberships: Sequence[Membership]

    @property
    def groups(self) -> dict[tuple[str, str], GroupFigures]:
        return groups_over([self])

    def figures(self, level: str) -> dict[Key, Figures]:
        """The figures of a level: metrics, endpoints, services, functions or sites."""
        return {key: figures_of(states) for key, states in getattr(self, level).items()}

    def timelines(self, level: str) -> dict[Key, tuple[Segment, ...]]:
        return {key: segments(states, self.day) for key, states in getattr(self, level).items()}


def day_report(
    world: World, profile: Profile, day: date, until: datetime | None = None
) -> DayReport:
    """The expected report on one day of the world; `until` ends a day that is still open."""
    seconds = DAY_S if until is None else second_of(until, day)
    results_of = counting_results(world, profile)
    expected = _expected_endpoints(world, profile, day)
    metrics: dict[Key, States] = {}
    for site, flavour, host in expected:
        for metric in profile.flavours[flavour].metrics:
            results = results_of.get((host, flavour, metric), ())
            validity_s = profile.validity_of.get(metric, profile.validity_s)
            states = _metric_states(results, validity_s, day)
            key = (site, flavour, host, metric)
            metrics[key] = _with_exclusions(states, key, world.exclusions, day)[:seconds]
    in_force = _downtimes_in_force(world.downtimes, profile)
    operations = {"AND": ranked(AND), "OR": ranked(OR), **profile.operations}

    def folded(operation: str, children: Sequence[States]) -> States:
        return fold(operations[operation], children)

    endpoints = {
        key: _with_downtimes(
            folded(profile.metrics_operation, _children(metrics, key)), in_force, names, key, day
        )
        for key, names in expected.items()
    }
    services = _services(endpoints, profile, folded)
    functions = _functions(services, profile, folded)
    sites: dict[Key, States] = {}
    for site in sorted({site for site, _ in functions}):
        states = folded(profile.functions_operation, _children(functions, (site,)))
        sites[site,] = _with_exclusions(states, (site,), world.exclusions, day)
    memberships = _memberships(world.site_groups, sites, profile, day)
    return DayReport(day, metrics, endpoints, services, functions, sites, memberships)


def period(figures: Iterable[Figures]) -> Figures:
    """Rule 12: sum the seconds, then divide."""
    days = list(figures)
    return Figures({status: sum(day.seconds[status] for day in days) for status in STATUSES})


def groups_over(days: Iterable[DayReport]) -> dict[tuple[str, str], GroupFigures]:
    """Rule 13, of one day or several: every group that had members."""
    of_group: dict[tuple[str, str], list[Membership]] = {}
    for day in days:
        for membership in day.memberships:
            of_group.setdefault(membership.group, []).append(membership)
    return {group: _group_figures(of_group[group]) for group in sorted(of_group)}


def ranked(order: Sequence[str]) -> Table:
    """Rule 10: of two statuses the one that is later in the order."""
    return tuple((a, b, max(a, b, key=order.index)) for a in order for b in order)


def fold(operation: Table, children: Sequence[States]) -> States:
    """Rules 7 and 10, second by second: the operation folds the set of the children's states."""
    present = 0
    for states in children:
        present |= int.from_bytes(states)
    return present.to_bytes(len(children[0])).translate(_translation(operation))


@cache
def _translation(operation: Table) -> bytes:
    """The code of the folded status for each set of codes; for the empty set EXCLUDED."""
    folded = {pair: result for a, b, result in operation for pair in ((a, b), (b, a))}
    code_of = bytearray(256)
    for present in range(1, 1 << len(AND)):
        children = [status for status in AND if CODE[status] & present]
        code_of[present] = CODE[reduce(lambda a, b: folded[a, b], children)]
    return bytes(code_of)


def figures_of(states: States) -> Figures:
    seconds = dict.fromkeys(STATUSES, 0)
    for status, length in _runs(states):
        seconds[status] += length
    return Figures(seconds)


def segments(states: States, day: date) -> tuple[Segment, ...]:
    """The timeline of the states: one segment for each run of equal states."""
    timeline = []
    start = midnight(day)
    for status, length in _runs(states):
        end = start + timedelta(seconds=length)
        timeline.append(Segment(start, end, status))
        start = end
    return tuple(timeline)


def trend(timeline: Sequence[Segment]) -> Trend:
    changes = [segment.start for segment in timeline[1:]]
    return Trend(len(changes), min(changes, default=None), max(changes, default=None))


_RUN = re.compile(b"|".join(re.escape(bytes([code])) + b"+" for code in STATUS_OF), re.DOTALL)


def _runs(states: States) -> Iterator[tuple[str, int]]:
    """(status, seconds) of each run of equal states."""
    for run in _RUN.finditer(states):
        yield STATUS_OF[states[run.start()]], run.end() - run.start()


def second_of(moment: datetime, day: date) -> int:
    """The second of the day: negative before the day, 86 400 or more after it."""
    return int((moment - midnight(day)).total_seconds())


def rounded(value: Fraction | None) -> Decimal | None:
    """The value with five decimals, rounded half up."""
    if value is None:
        return None
    exact = Decimal(value.numerator) / Decimal(value.denominator)
    return exact.quantize(Decimal("0.00001"), ROUND_HALF_UP)


def _expected_endpoints(world: World, profile: Profile, day: date) -> dict[Key, set[str]]:
    """Rule 2, with the topology of the day's midnight; of several rows the latest governs.

    Each endpoint has the names of its site: that of the report, and those that others call it.
    """
    moment = midnight(day)
    governing: dict[Key, Endpoint] = {}
    for row in sorted(world.endpoints, key=lambda row: row.valid_from):
        if row.valid_from <= moment and (row.valid_to is None or row.valid_to > moment):
            governing[row.site, row.flavour, row.host, row.vo] = row
    groups = [
        (row.site, f"{row.group_type}/{row.group_name}")
        for row in world.site_groups
        if row.valid_from <= moment and (row.valid_to is None or row.valid_to > moment)
    ]
    names: dict[Key, set[str]] = {}
    for row in sorted(governing.values(), key=lambda row: (row.site, row.flavour, row.host)):
        if (
            row.flavour in profile.flavours
            and (profile.vo is None or row.vo in ("", profile.vo))
            and row.production != "N"
            and row.monitored != "N"
            and _is_chosen(row.site, [group for site, group in groups if site == row.site], profile)
        ):
            sites = names.setdefault((row.site, row.flavour, row.host), {row.site})
            sites |= {row.grid_site} - {""}
    return names


def _is_chosen(site: str, groups: Sequence[str], profile: Profile) -> bool:
    """Whether a pattern of the profile matches the site or one of its groups, if there are any."""

    def matches(pattern: str, name: str) -> bool:
        return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), name) is not None

    return (
        not (profile.sites or profile.groups)
        or any(matches(pattern, site) for pattern in profile.sites)
        or any(matches(pattern, group) for pattern in profile.groups for group in groups)
    )


def counting_results(world: World, profile: Profile) -> dict[Key, list[tuple[datetime, str]]]:
    """Times and judged statuses of the results that count, by (host, flavour, metric)."""
    results_of: dict[Key, list[tuple[datetime, str]]] = {}
    for result in world.results:
        if (
            profile.vo in (None, result.vo)
            and profile.fqan in (None, result.fqan)
            and not _is_dropped(result, world.exclusions)
        ):
            key = (result.host, result.flavour, result.metric)
            results_of.setdefault(key, []).append((result.measured_at, judged(result, profile)))
    return results_of


def judged(result: Result, profile: Profile) -> str:
    """Rule 6: the status by the most specific threshold for each label, or as it was sent."""
    values = performance_values(result.performance_data)
    rule_of: dict[str, Threshold] = {}
    for rule in sorted(profile.thresholds, key=lambda rule: (rule.host != "", rule.flavour != "")):
        if (
            rule.metric == result.metric
            and rule.host in ("", result.host)
            and rule.flavour in ("", result.flavour)
        ):
            rule_of[rule.label] = rule
    rules = [(rule, values[label]) for label, rule in rule_of.items() if label in values]
    if any(rule.critical and is_outside(rule.critical, value) for rule, value in rules):
        return "CRITICAL"
    if any(rule.warning and is_outside(rule.warning, value) for rule, value in rules):
        return "WARNING"
    return result.status


def performance_values(performance_data: str) -> dict[str, Fraction]:
    """The numbers by label, without units: `time=2.5s;;; 'free space'=10%`."""
    values = re.findall(r"(?:'([^']+)'|(\S+?))=([-+]?[0-9.]+)\S*", performance_data)
    return {quoted or plain: Fraction(number) for quoted, plain, number in values}


def is_outside(limits: str, value: Fraction) -> bool:
    """Whether a value is outside `10` (0 to 10), `10:`, `~:10`, `10:20`, or inside `@10:20`."""
    low, colon, high = limits.removeprefix("@").partition(":")
    if not colon:
        low, high = "0", low
    is_inside = (low == "~" or Fraction(low) <= value) and (not high or value <= Fraction(high))
    return is_inside if limits.startswith("@") else not is_inside


def _is_dropped(result: Result, exclusions: Iterable[Exclusion]) -> bool:
    """Rule 7: results of an excluded monitoring host do not count, those at both ends included."""
    return any(
        exclusion.kind == "monitoring-host"
        and exclusion.monitoring_host == _monitoring_host(result)
        and exclusion.start <= result.measured_at <= exclusion.end
        for exclusion in exclusions
    )


def _monitoring_host(result: Result) -> str:
    """The monitoring host, which is the host of the probe where none is named."""
    return result.monitoring_host or result.gathered_at


def _metric_states(
    results: Iterable[tuple[datetime, str]], validity_s: int | None, day: date
) -> States:
    """Rules 3, 4 and 5: each result paints all later seconds; of one second the worse is last."""
    states = bytearray([CODE["MISSING"]]) * DAY_S
    coded = [(second_of(measured_at, day), CODE[status]) for measured_at, status in results]
    for second, code in sorted(coded):
        # Without a validity, results from before the previous day do not count.
        if second >= -DAY_S or validity_s is not None:
            _paint(states, second, DAY_S, code)
            if validity_s is not None:
                _paint(states, second + validity_s, DAY_S, CODE["MISSING"])
    return bytes(states)


def _paint(states: bytearray, first: int, last: int, code: int) -> None:
    """Set the seconds [first, last), as far as they are in the day, to the code."""
    first, last = (min(max(second, 0), len(states)) for second in (first, last))
    states[first:last] = bytes([code]) * (last - first)


def _with_exclusions(
    states: States, key: Key, exclusions: Iterable[Exclusion], day: date
) -> States:
    """Rule 7: a metric (site, flavour, host, metric) is EXCLUDED, a group (site,) UNKNOWN."""
    painted = bytearray(states)
    for exclusion in exclusions:
        selectors = (exclusion.site, exclusion.flavour, exclusion.host, exclusion.metric)
        if exclusion.kind == "site" and key == (exclusion.site,):
            code = CODE["UNKNOWN"]
        elif exclusion.kind == "metric" and len(key) == 4 and _matches(selectors, key):
            code = CODE["EXCLUDED"]
        else:
            continue
        _paint(painted, second_of(exclusion.start, day), second_of(exclusion.end, day), code)
    return bytes(painted)


def _matches(selectors: Key, key: Key) -> bool:
    """Whether every selector matches; an empty one matches any name."""
    return all(selector in ("", name) for selector, name in zip(selectors, key, strict=True))


def _downtimes_in_force(downtimes: Iterable[Downtime], profile: Profile) -> list[Downtime]:
    """Rule 8: what was said last of each downtime, as far as it is of a kind that counts."""
    said: dict[tuple[object, ...], list[Downtime]] = {}
    for downtime in sorted(downtimes, key=lambda downtime: downtime.announced_at):
        identity = downtime.downtime_id or downtime.start  # without an id the start identifies it
        key = (identity, downtime.site, downtime.host, downtime.flavour)
        said.setdefault(key, []).append(downtime)
    return [
        part
        for of_one in said.values()
        for part in (_by_notice(of_one, profile.notice_s) if profile.notice_s else of_one[-1:])
        if f"{part.classification}/{part.severity}" in profile.downtimes
    ]


def _by_notice(said: Sequence[Downtime], notice_s: int) -> Iterator[Downtime]:
    """Rule 8: what was said last, unscheduled until the notice since it was announced has passed.

    Each part was announced by the first of the statements from which on all have it.
    """
    last = said[-1]
    edges = {edge for one in said for edge in (one.start, one.end)}
    for start, end in pairwise(sorted(edge for edge in edges if last.start <= edge <= last.end)):
        arrivals = []
        for one in reversed(said):
            is_same = (one.classification, one.severity) == (last.classification, last.severity)
            if not (is_same and one.start <= start and end <= one.end):
                break
            assert one.arrived_at
            arrivals.append(one.arrived_at)
        late = min(max(start, min(arrivals) + timedelta(seconds=notice_s)), end)
        if last.classification == "SCHEDULED":
            yield replace(last, start=start, end=late, classification="UNSCHEDULED")
            start = late
        yield replace(last, start=start, end=end)


def _with_downtimes(
    states: States, downtimes: Iterable[Downtime], sites: set[str], endpoint: Key, day: date
) -> States:
    """Rule 8; a downtime may name any of the endpoint's sites."""
    painted = bytearray(states)
    for downtime in downtimes:
        of_site = downtime.site == "" or downtime.site in sites
        if of_site and _matches((downtime.flavour, downtime.host), endpoint[1:]):
            start, end = second_of(downtime.start, day), second_of(downtime.end, day)
            _paint(painted, start, end, CODE["DOWNTIME"])
    return bytes(painted)


Folding = Callable[[str, Sequence[States]], States]
"""Folds the states of children, by the name of an operation."""


def _services(
    endpoints: Mapping[Key, States], profile: Profile, folded: Folding
) -> dict[Key, States]:
    """Rule 9: a service is a flavour of a site, folded from its endpoints."""
    keys = sorted({key[:2] for key in endpoints})
    return {
        key: folded(profile.flavours[key[1]].endpoints_operation, _children(endpoints, key))
        for key in keys
    }


def _functions(
    services: Mapping[Key, States], profile: Profile, folded: Folding
) -> dict[Key, States]:
    """Rule 9: without functions in the profile, every flavour is a function of its own name."""
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


def _memberships(
    rows: Iterable[SiteGroup], sites: Mapping[Key, States], profile: Profile, day: date
) -> list[Membership]:
    """The sites of each group at the day's midnight that the report expects."""
    moment = midnight(day)
    governing: dict[Key, SiteGroup] = {}
    for row in sorted(rows, key=lambda row: row.valid_from):
        if row.valid_from <= moment and (row.valid_to is None or row.valid_to > moment):
            governing[row.group_type, row.group_name, row.site] = row
    return [
        Membership(
            (row.group_type, row.group_name),
            row.site,
            _weight(row.weight, profile),
            figures_of(sites[row.site,]),
        )
        for row in governing.values()
        if (row.site,) in sites
    ]


def _weight(announced: int | None, profile: Profile) -> int:
    """Rule 13: without one it is 1; ARGO takes that for 0, and adds 1 to each."""
    if profile.weights == "argo":
        return 1 + (0 if announced is None else announced)
    return 1 if announced is None else announced


def _group_figures(memberships: Sequence[Membership]) -> GroupFigures:
    sites = {membership.site for membership in memberships}
    values = [
        period(m.figures for m in memberships if m.site == site).exact_availability
        for site in sites
    ]
    return GroupFigures(
        rounded(_mean(memberships, lambda figures: figures.exact_availability)),
        rounded(_mean(memberships, lambda figures: figures.exact_reliability)),
        len(sites),
        sum(value is not None for value in values),
    )


def _mean(
    memberships: Sequence[Membership], share: Callable[[Figures], Fraction | None]
) -> Fraction | None:
    """Rule 13: a site has the value of all its days, and the weights of those that have a value."""
    shares, weights = Fraction(0), 0
    for site in {membership.site for membership in memberships}:
        days = [membership for membership in memberships if membership.site == site]
        value = share(period(day.figures for day in days))
        weight = sum(day.weight for day in days if share(day.figures) is not None)
        if value is not None:
            shares += weight * value
            weights += weight
    return shares / weights if weights else None


def _percent(part: int, whole: int) -> Fraction | None:
    return Fraction(100 * part, whole) if whole else None


def _children(states: Mapping[Key, States], parent: Key) -> list[States]:
    return [value for key, value in states.items() if key[: len(parent)] == parent]
