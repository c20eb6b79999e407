"""Random worlds contain the edge cases they are drawn for; a failing one is reported reduced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from datetime import timedelta
from itertools import combinations, permutations

import pytest

from tests.oracle.batch import Batch, drawn_batch, named
from tests.oracle.check import differences, smallest
from tests.oracle.oracle import AND, OR, STATUSES
from tests.worlds.drawn import drawn
from tests.worlds.drawn_setting import profiles
from tests.worlds.model import Result, World, midnight

SEED, BATCHES, SIZE = 7, 16, 24  # the draws also depend on the modules that are loaded


@pytest.fixture(scope="module")
def batches() -> list[Batch]:
    return [drawn_batch(SEED, number, SIZE) for number in range(BATCHES)]


def test_a_seed_draws_the_same_worlds_again() -> None:
    assert drawn_batch(SEED, 1, 10) == drawn_batch(SEED, 1, 10) != drawn_batch(SEED, 0, 10)


def seconds_beside_midnight(world: World) -> set[int]:
    midnights = [midnight(day) for day in world.all_days]
    return {
        int((result.measured_at - moment).total_seconds())
        for result in world.results
        for moment in midnights
    } & {-1, 0, 1}


def moments(world: World, *more: str) -> Counter[tuple[object, ...]]:
    """The number of statuses at each moment of an instance."""
    names = ("host", "flavour", "metric", "vo", "fqan", "measured_at", *more)
    statuses = {
        (*[getattr(result, name) for name in names], result.status) for result in world.results
    }
    return Counter(key[:-1] for key in statuses)


def without_one_monitoring_host(world: World) -> bool:
    """Whether a result remains whose worse copy by another monitoring host is excluded."""

    def is_excluded(result: Result) -> bool:
        return any(
            exclusion.monitoring_host == result.monitoring_host
            and exclusion.start <= result.measured_at <= exclusion.end
            for exclusion in world.exclusions
        )

    by_probe: dict[tuple[object, ...], list[Result]] = {}
    for result in world.results:
        key = replace(result, monitoring_host="", status="", performance_data="")
        by_probe.setdefault(astuple(key), []).append(result)
    return any(
        AND.index(a.status) > AND.index(b.status) and is_excluded(a) and not is_excluded(b)
        for copies in by_probe.values()
        for a, b in permutations(copies, 2)
    )


def only_the_day_before(world: World) -> bool:
    def day_of(result: Result) -> object:
        return result.measured_at.date()

    return any(
        {day_of(result) for result in world.results if result.host == host} == {world.all_days[0]}
        for host in {result.host for result in world.results}
    )


def touching(world: World) -> bool:
    pairs = combinations(
        [downtime for downtime in world.downtimes if downtime.start < downtime.end], 2
    )
    return any(a.end == b.start or b.end == a.start for a, b in pairs)


def overlapping(world: World) -> bool:
    pairs = combinations(world.downtimes, 2)
    return any(a.start < b.start < a.end < b.end for a, b in pairs)


def covering_a_day(rows: Sequence[object], world: World) -> bool:
    day = timedelta(days=1)
    return any(
        row.start <= midnight(date) and row.end >= midnight(date) + day  # type: ignore[attr-defined]
        for row in rows
        for date in world.all_days
    )


def in_two_sites(world: World) -> bool:
    places = {(endpoint.host, endpoint.flavour, endpoint.site) for endpoint in world.endpoints}
    return max(Counter(pair[:2] for pair in places).values(), default=0) > 1


EDGES: dict[str, Callable[[World], bool]] = {
    "a result at midnight, one second before and one after": lambda world: (
        seconds_beside_midnight(world) == {-1, 0, 1}
    ),
    "two statuses at a moment": lambda world: max(moments(world).values(), default=0) > 1,
    "two statuses of one run of a probe": lambda world: (
        max(moments(world, "gathered_at", "monitoring_host").values(), default=0) > 1
    ),
    "one run of a probe for two monitoring hosts, the worse excluded": (
        without_one_monitoring_host
    ),
    "no result": lambda world: not world.results,
    "one result": lambda world: len(world.results) == 1,
    "no endpoint": lambda world: not world.endpoints,
    "a host with results of the first day only": only_the_day_before,
    "downtimes that touch": touching,
    "downtimes that overlap": overlapping,
    "a downtime of a whole day": lambda world: covering_a_day(world.downtimes, world),
    "a downtime that is cancelled": lambda world: any(
        downtime.start == downtime.end for downtime in world.downtimes
    ),
    "a downtime announced twice": lambda world: (
        max(
            Counter(
                (d.downtime_id, d.site, d.host, d.flavour) for d in world.downtimes if d.downtime_id
            ).values(),
            default=0,
        )
        > 1
    ),
    "a downtime that ends at midnight": lambda world: any(
        downtime.end == midnight(day) for downtime in world.downtimes for day in world.all_days
    ),
    "an endpoint of two sites": in_two_sites,
    "an endpoint that is not monitored": lambda world: any(
        "N" in (endpoint.production, endpoint.monitored) for endpoint in world.endpoints
    ),
    "an endpoint that comes or goes at midnight": lambda world: any(
        midnight(day) in (endpoint.valid_from, endpoint.valid_to)
        for endpoint in world.endpoints
        for day in world.all_days
    ),
    "a site with two weights": lambda world: (
        max(
            Counter(
                (group.site, group.group_type, group.group_name) for group in world.site_groups
            ).values(),
            default=0,
        )
        > 1
    ),
}


@pytest.mark.parametrize("edge", EDGES)
def test_some_worlds_have_the_edge_case(edge: str, batches: list[Batch]) -> None:
    matches = [world for batch in batches for world in batch.worlds if EDGES[edge](world)]

    assert matches


def test_every_status_occurs_at_some_site(batches: list[Batch]) -> None:
    statuses = {
        span[2]
        for batch in batches
        for world_facts in replace(batch, worlds=batch.worlds[:12]).oracle_facts().values()
        for fact, timeline in world_facts.items()
        if fact[:2] == ("timeline", "sites")
        for span in timeline  # type: ignore[attr-defined]
    }

    assert statuses >= set(STATUSES) - {"EXCLUDED"}


def test_profiles_use_every_kind_of_setting() -> None:
    drawn_profiles = [drawn(profiles(), 3, number)[-1] for number in range(24)]

    assert {profile.vo for profile in drawn_profiles} == {None, "", "ops"}
    assert {profile.fqan for profile in drawn_profiles} == {None, "", "/ops/pilot"}
    assert {None} < {profile.validity_s for profile in drawn_profiles}
    assert any(profile.validity_of for profile in drawn_profiles)
    assert any(profile.thresholds for profile in drawn_profiles)
    assert any(len(profile.functions) > 1 for profile in drawn_profiles)
    operations = [table for profile in drawn_profiles for table in profile.operations.values()]
    assert any(result not in (a, b) for table in operations for a, b, result in table)
    assert all({a for a, _, _ in table} == set(AND) == set(OR) for table in operations)


def test_two_worlds_of_a_batch_share_no_names(batches: list[Batch]) -> None:
    def names(world: World) -> set[str]:
        rows = [*world.endpoints, *world.downtimes, *world.results, *world.exclusions]
        names_of_rows = {
            getattr(row, name, "") for row in rows for name in ("site", "host", "monitoring_host")
        }
        return (names_of_rows | {row.group_name for row in world.site_groups}) - {""}

    world = batches[0].worlds[-1]

    assert names(world)
    assert names(named(world, "w1")).isdisjoint(names(named(world, "w2")))


def test_a_failing_world_is_reduced_to_what_makes_it_fail(batches: list[Batch]) -> None:
    def wrong(worlds: Sequence[World]) -> list[bool]:
        """A fake defect: a world with a downtime and a critical result is wrong."""
        return [
            bool(world.downtimes) and any(result.status == "CRITICAL" for result in world.results)
            for world in worlds
        ]

    worlds = batches[0].worlds
    world = next(world for world in worlds if len(world.downtimes) > 1 and wrong([world])[0])
    small = smallest(world, wrong)
    text = differences(replace(batches[0], worlds=[small]), {"w000": {}})

    assert [len(small.downtimes), len(small.results)] == [1, 1]
    assert not small.endpoints and not small.site_groups and not small.exclusions
    assert 'name = "worlds"' in text
    assert "Downtime(" in text and "status=CRITICAL" in text
