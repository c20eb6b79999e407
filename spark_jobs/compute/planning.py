"""Plans the reports of a run: numbers instances and things, and decides which instances count.

Whether a result counts is a property of its instance and its day. So names are compared here, once,
and only numbers travel with the results.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from sam_pipeline.spark_jobs.compute.folding import (
    COUNTS,
    NOT_IN_PROFILE,
    OTHER_VO,
    REASONS,
    Covers,
    Level,
    Links,
    Plan,
    PlannedDay,
)
from sam_pipeline.spark_jobs.compute.stretches import NAMES as INSTANCE_NAMES
from sam_pipeline.spark_jobs.compute.stretches import Flags
from sam_pipeline.spark_jobs.inputs.expected import Cover, DayExpectation, Endpoint
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start
from sam_pipeline.spark_jobs.rules.levels import (
    ALL_NAMES,
    ENDPOINT,
    FUNCTION,
    METRIC,
    NAMES,
    SERVICE,
    SITE,
)
from sam_pipeline.spark_jobs.rules.shares import Integers
from sam_pipeline.sql.archive.digests import Hashes, instance_keys, name_hashes

_NEVER_EXPIRES_S = 2 * DAY_S + 1  # longer than such results count (rule 5)
_ABSENT = -1

Names = tuple[str, ...]

UNKNOWN_ID = -1
"""The id of an instance that the database does not know."""


class Instances(NamedTuple):
    """All metric instances, numbered from 0, with a row for each.

    `ids` are those of the database. `endpoint`, `metric`, `vo` and `fqan` are places in the lists
    of names. The name of an endpoint is (flavour, host). `key` is an odd number that depends on
    all names, and on nothing else.
    """

    ids: Integers
    endpoint: Integers
    metric: Integers
    vo: Integers
    fqan: Integers
    key: Hashes
    endpoints: Sequence[tuple[str, str]]
    metrics: Sequence[str]
    vos: Sequence[str | None]
    fqans: Sequence[str | None]

    def shared(self) -> Integers:
        """The numbers of those that differ only in their FQANs: a report treats them as one."""
        name = (self.endpoint * len(self.metrics) + self.metric) * len(self.vos) + self.vo
        _, number, count = np.unique(name, return_inverse=True, return_counts=True)
        return np.flatnonzero(count[number] > 1)


def numbered(tables: Sequence[pa.Table]) -> Instances:
    """Number the instances of all tables, each of them once.

    A table has a column for each of their names, and `instance_id` if the database knows them.
    """
    together = pa.concat_tables(tables, promote_options="default")
    columns = [
        together[name].combine_chunks().dictionary_encode(null_encoding="encode")
        for name in INSTANCE_NAMES
    ]
    places = [column.indices.to_numpy().astype(np.int64) for column in columns]
    lists = [column.dictionary.to_pylist() for column in columns]
    code = np.zeros(len(together), np.int64)
    for place, names in zip(places, lists, strict=True):
        code = code * len(names) + place
    _, first, number = np.unique(code, return_index=True, return_inverse=True)
    ids = np.full(len(first), UNKNOWN_ID)
    if "instance_id" in together.column_names:
        of_row = together["instance_id"].fill_null(UNKNOWN_ID).to_numpy()
        known = of_row != UNKNOWN_ID
        ids[number[known]] = of_row[known]
    host, flavour, metric, vo, fqan = (place[first] for place in places)
    hosts, flavours, metrics, vos, fqans = lists
    pairs, endpoint = np.unique(flavour * len(hosts) + host, return_inverse=True)
    endpoints = [(flavours[pair // len(hosts)], hosts[pair % len(hosts)]) for pair in pairs]
    return Instances(
        *(ids, endpoint, metric, vo, fqan),
        instance_keys(
            name_hashes(endpoints)[endpoint],
            name_hashes(metrics)[metric],
            name_hashes(vos)[vo],
            name_hashes(fqans)[fqan],
        ),
        *(endpoints, metrics, vos, fqans),
    )


def make_plan(
    profile: Profile,
    expected: Sequence[DayExpectation],
    run_ids: Sequence[int],
    instances: Instances,
    group_of: Mapping[str, int],
    now: int,
) -> Plan:
    """The plan of a report for its days.

    Args:
        expected, run_ids: the expected things of each day, and its run.
        group_of: the group of each site, from `site_groups`.
        now: the time of the run (epoch s).
    """
    things = _Things(profile, {endpoint for day in expected for endpoint in day.endpoints})
    refused, metrics = things.of_instances(instances)
    return Plan(
        levels=things.levels(group_of),
        answers=np.array([operation.answers for operation in profile.operations], np.int64),
        validity=things.seconds(lambda name: profile.validity(name) or _NEVER_EXPIRES_S),
        look_back=things.seconds(lambda name: profile.look_back_of(name) * DAY_S),
        refused=refused,
        metrics=metrics,
        one_vo=profile.vo is None,
        days=[
            PlannedDay(
                run_id,
                start=day_start(day.day),
                end=min(day_start(day.day) + DAY_S, now),
                metrics=things.metrics_expected(day.endpoints),
                covers=things.covers(day.covers),
            )
            for day, run_id in zip(expected, run_ids, strict=True)
        ],
    )


def site_groups(endpoints: Iterable[Endpoint], count: int) -> dict[str, int]:
    """A group for each site, from 0 to count - 1; all have about the same number of endpoints.

    Sites that share an endpoint are in one group, so that its results travel to one place only.
    """
    sites_of: dict[Names, set[str]] = defaultdict(set)
    for site, *endpoint in endpoints:
        sites_of[tuple(endpoint)].add(site)
    leader = {site: site for sites in sites_of.values() for site in sites}

    def leader_of(site: str) -> str:
        while leader[site] != site:
            site = leader[site]
        return site

    for first, *others in map(sorted, sites_of.values()):
        for other in others:
            leader[leader_of(other)] = leader_of(first)
    sizes = Counter(leader_of(site) for sites in sites_of.values() for site in sites)
    smallest = [(0, group) for group in range(count)]  # a heap of (number of endpoints, group)
    group_of = {}
    for site, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        endpoints_there, group_of[site] = smallest[0]
        heapq.heapreplace(smallest, (endpoints_there + size, group_of[site]))
    return {site: group_of[leader_of(site)] for site in leader}


def instance_groups(
    instances: Instances, endpoints: Iterable[Endpoint], group_of: Mapping[str, int], count: int
) -> Integers:
    """The group of each instance: that of its site, or any if nothing is expected of it."""
    of_endpoint = {endpoint[1:]: group_of[endpoint.site] for endpoint in endpoints}
    groups = [of_endpoint.get(name, n % count) for n, name in enumerate(instances.endpoints)]
    return np.array(groups, np.int64)[instances.endpoint]


class _Things:
    """Numbers the things of a report. The metrics of an endpoint have successive numbers."""

    def __init__(self, profile: Profile, endpoints: Iterable[Endpoint]) -> None:
        self._profile = profile
        self._metrics_of = {flavour.name: flavour.metrics for flavour in profile.flavours}
        self._endpoints = sorted(endpoints)
        self._number_of = {endpoint: number for number, endpoint in enumerate(self._endpoints)}
        metrics = [self._metrics_of[endpoint.service_flavour] for endpoint in self._endpoints]
        self._first_metric = np.cumsum([0, *map(len, metrics)])
        self._endpoint_of = np.repeat(np.arange(len(metrics)), np.diff(self._first_metric))
        self._metric_names = _encoded(list(chain.from_iterable(metrics)))
        served = {e.site for e in self._endpoints if profile.functions_of(e.service_flavour)}
        self._sites = sorted(served)

    def levels(self, group_of: Mapping[str, int]) -> list[Level]:
        """All levels, metrics first."""
        profile, number = self._profile, self._profile.operation_number
        endpoint_of, endpoints = self._endpoint_of, len(self._endpoints)
        of_endpoints = _name_table(ENDPOINT, self._endpoints)
        column = of_endpoints.column_names.index("metric_name")
        of_metrics = of_endpoints.take(pa.array(endpoint_of))
        of_metrics = of_metrics.set_column(column, "metric_name", self._metric_names)
        groups = np.array([group_of[endpoint.site] for endpoint in self._endpoints], np.int64)
        each_metric = np.arange(len(endpoint_of) + 1)
        levels = [
            Level(
                METRIC,
                of_metrics,
                Links(each_metric, each_metric[:-1]),
                np.full(len(endpoint_of), number("AND")),
                groups[endpoint_of],
            ),
            Level(
                ENDPOINT,
                of_endpoints,
                Links(each_metric, endpoint_of),
                np.full(endpoints, number(profile.metrics_operation)),
                groups,
            ),
        ]
        of_flavour = {f.name: number(f.endpoints_operation) for f in profile.flavours}
        of_function = {f.name: number(f.flavours_operation) for f in profile.functions}
        # For each other level the parents of a thing below, and the operation of a thing.
        steps: list[tuple[str, Callable[[Names], list[Names]], Callable[[Names], int]]] = [
            (SERVICE, lambda endpoint: [endpoint[:2]], lambda service: of_flavour[service[1]]),
            (
                FUNCTION,
                lambda service: [(service[0], name) for name in profile.functions_of(service[1])],
                lambda function: of_function[function[1]],
            ),
            (SITE, lambda function: [function[:1]], lambda _: number(profile.functions_operation)),
        ]
        things: list[Names] = list(self._endpoints)
        for name, parents_of, operation_of in steps:
            parents = list(map(parents_of, things))
            things = sorted(set(chain.from_iterable(parents)))
            numbers = {thing: place for place, thing in enumerate(things)}
            level = Level(
                name,
                _name_table(name, things),
                _links([[numbers[parent] for parent in several] for several in parents]),
                np.array(list(map(operation_of, things)), np.int64),
                np.array([group_of[thing[0]] for thing in things], np.int64),
            )
            levels.append(level)
        return levels

    def of_instances(self, instances: Instances) -> tuple[Integers, Links]:
        """`refused` and `metrics` of the plan."""
        profile, metrics_of = self._profile, self._metrics_of
        # The place of each metric among those of each flavour; the last row is of other flavours.
        places = np.full((len(metrics_of) + 1, len(instances.metrics)), _ABSENT)
        row_of = {flavour: row for row, flavour in enumerate(metrics_of)}
        column_of = {metric: column for column, metric in enumerate(instances.metrics)}
        for flavour, metrics in metrics_of.items():
            for number, metric in enumerate(metrics):
                if metric in column_of:
                    places[row_of[flavour], column_of[metric]] = number
        rows = [row_of.get(flavour, len(metrics_of)) for flavour, _ in instances.endpoints]
        place: Integers = places[np.array(rows, np.int64)[instances.endpoint], instances.metric]
        # Availability rule 2.
        of_vo = np.array([profile.vo in (None, vo) for vo in instances.vos], bool)
        of_fqan = np.array([profile.fqan in (None, fqan) for fqan in instances.fqans], bool)
        is_of_both = of_vo[instances.vo] & of_fqan[instances.fqan]
        refused = np.where(is_of_both, COUNTS, REASONS.index(OTHER_VO))
        refused[place == _ABSENT] = REASONS.index(NOT_IN_PROFILE)

        at_sites = defaultdict(list)
        for number, (_, flavour, host) in enumerate(self._endpoints):
            at_sites[flavour, host].append(number)
        of_endpoints = _links([at_sites.get(name, ()) for name in instances.endpoints])
        instance, endpoint = of_endpoints.follow(instances.endpoint)
        known = place[instance] != _ABSENT
        instance, endpoint = instance[known], endpoint[known]
        begin = np.searchsorted(instance, np.arange(len(instances.ids) + 1))
        return refused, Links(begin, self._first_metric[endpoint] + place[instance])

    def seconds(self, of_name: Callable[[str], int]) -> Integers:
        """The seconds of each metric thing, by its metric name."""
        seconds = list(map(of_name, self._metric_names.dictionary.to_pylist()))
        of_metrics: Integers = np.array(seconds, np.int64)[self._metric_names.indices.to_numpy()]
        return of_metrics

    def metrics_expected(self, endpoints: Iterable[Endpoint]) -> Flags:
        """Whether each metric thing is one of these endpoints'."""
        is_expected = np.zeros(len(self._endpoints), bool)
        is_expected[[self._number_of[endpoint] for endpoint in endpoints]] = True
        of_metrics: Flags = is_expected[self._endpoint_of]
        return of_metrics

    def covers(self, covers: Iterable[Cover]) -> dict[str, Covers]:
        """The covers of each level."""
        rows = defaultdict(list)
        for cover in covers:
            if cover.level == SITE:
                thing = self._sites.index(cover.site)
            else:
                endpoint = Endpoint(*cover[1:4])
                thing = self._number_of[endpoint]
                if cover.level == METRIC:
                    place = self._metrics_of[endpoint.service_flavour].index(cover.metric_name)
                    thing = self._first_metric[thing] + place
            rows[cover.level].append((thing, cover.start, cover.end))
        return {level: Covers(*np.array(of_level, np.int64).T) for level, of_level in rows.items()}


def _name_table(level: str, things: Sequence[Names]) -> pa.Table:
    columns = map(list, zip(*things, strict=True)) if things else [[]] * len(NAMES[level])
    of_level = dict(zip(NAMES[level], columns, strict=True))
    nothing = [""] * len(things)
    return pa.table({name: _encoded(of_level.get(name, nothing)) for name in ALL_NAMES})


def _encoded(names: Sequence[str]) -> pa.DictionaryArray:
    return pa.array(names, pa.string()).dictionary_encode()


def _links(ends: Sequence[Sequence[int]]) -> Links:
    """The links of each number: those at its place in `ends`."""
    begin = np.cumsum([0, *map(len, ends)])
    return Links(begin, np.array(list(chain.from_iterable(ends)), np.int64))
