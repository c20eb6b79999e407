"""The worlds contain the edge cases they are made for; a failing random one is reported reduced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, replace
from datetime import date, timedelta
from functools import cache
from itertools import combinations, permutations

import pytest

from tests.oracle.batch import Batch, drawn_batch
from tests.oracle.check import differences, smallest
from tests.oracle.oracle import AND, OR, STATUSES
from tests.worlds.drawn import drawn
from tests.worlds.drawn_setting import profiles
from tests.worlds.model import Result, World, midnight

SEED, SIZE = 7, 24
BATCHES = 80
"""At most; the draws also depend on the modules that are loaded, so some need more than others."""
DAY = timedelta(days=1)


@cache
def batch(number: int) -> Batch:
    return drawn_batch(SEED, number, SIZE)


def most(keys: Iterable[object]) -> int:
    """How often the most frequent key occurs."""
    return max(Counter(keys).values(), default=0)


def beside_midnight(world: World) -> set[int]:
    return {
        int((result.measured_at - midnight(day)).total_seconds())
        for result in world.results
        for day in world.all_days
    } & {-1, 0, 1}


def statuses_at_once(world: World, *more: str) -> int:
    """The most statuses of an instance at one moment."""
    names = ("host", "flavour", "metric", "vo", "fqan", "measured_at", *more, "status")
    keys = {tuple(getattr(result, name) for name in names) for result in world.results}
    return most(key[:-1] for key in keys)


def worse_copy_excluded(world: World) -> bool:
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


def only_the_first_day(world: World) -> bool:
    days_of: dict[str, set[date]] = {}
    for result in world.results:
        days_of.setdefault(result.host, set()).add(result.measured_at.date())
    return {world.all_days[0]} in days_of.values()


EDGES: dict[str, Callable[[World], object]] = {
    "results at and beside midnight": lambda world: beside_midnight(world) == {-1, 0, 1},
    "two statuses at a moment": lambda world: statuses_at_once(world) > 1,
    "two statuses of one run of a probe": lambda world: (
        statuses_at_once(world, "gathered_at", "monitoring_host") > 1
    ),
    "the worse of two monitoring hosts is excluded": worse_copy_excluded,
    "no result": lambda world: not world.results,
    "one result": lambda world: len(world.results) == 1,
    "no endpoint": lambda world: not world.endpoints,
    "a host with results of the first day only": only_the_first_day,
    "downtimes that touch": lambda world: any(
        a.end == b.start > a.start and b.end > b.start for a, b in permutations(world.downtimes, 2)
    ),
    "downtimes that overlap": lambda world: any(
        a.start < b.start < a.end < b.end for a, b in combinations(world.downtimes, 2)
    ),
    "a downtime of a whole day": lambda world: any(
        d.start <= midnight(day) and d.end >= midnight(day) + DAY
        for d in world.downtimes
        for day in world.all_days
    ),
    "a downtime that is cancelled": lambda world: any(d.start == d.end for d in world.downtimes),
    "a downtime announced twice": lambda world: (
        most((d.downtime_id, d.site, d.host, d.flavour) for d in world.downtimes if d.downtime_id)
        > 1
    ),
    "an endpoint of two sites": lambda world: (
        most((host, flavour) for _, host, flavour in {astuple(e)[:3] for e in world.endpoints}) > 1
    ),
    "an endpoint that is not monitored": lambda world: any(
        "N" in (endpoint.production, endpoint.monitored) for endpoint in world.endpoints
    ),
    "an endpoint that comes or goes at midnight": lambda world: any(
        midnight(day) in (endpoint.valid_from, endpoint.valid_to)
        for endpoint in world.endpoints
        for day in world.all_days
    ),
    "a site with two weights": lambda world: (
        most((group.site, group.group_type, group.group_name) for group in world.site_groups) > 1
    ),
}


@pytest.mark.parametrize("edge", EDGES)
def test_some_worlds_have_the_edge_case(edge: str) -> None:
    assert any(EDGES[edge](world) for number in range(BATCHES) for world in batch(number).worlds)


def test_every_status_and_every_kind_of_setting_occurs() -> None:
    missing = set(STATUSES) - {"EXCLUDED"}
    for few in (
        replace(batch(number), worlds=batch(number).worlds[:8]) for number in range(BATCHES)
    ):
        for world_facts in few.oracle_facts().values():
            for fact, timeline in world_facts.items():
                if fact[:2] == ("timeline", "sites"):
                    missing -= {span[2] for span in timeline}  # type: ignore[attr-defined]
        if not missing:
            break
    drawn_profiles = [drawn(profiles(), 3, number)[-1] for number in range(80)]

    assert not missing
    assert {profile.vo for profile in drawn_profiles} == {None, "", "ops"}
    assert {profile.fqan for profile in drawn_profiles} == {None, "", "/ops/pilot"}
    assert {None} < {profile.validity_s for profile in drawn_profiles}
    assert any(profile.validity_of for profile in drawn_profiles)
    assert any(profile.thresholds for profile in drawn_profiles)
    assert any(len(profile.functions) > 1 for profile in drawn_profiles)
    operations = [table for profile in drawn_profiles for table in profile.operations.values()]
    assert any(result not in (a, b) for table in operations for a, b, result in table)
    assert all({a for a, _, _ in table} == set(AND) == set(OR) for table in operations)


def test_a_failing_world_is_reduced_to_what_makes_it_fail() -> None:
    def wrong(worlds: Sequence[World]) -> list[bool]:
        """A fake defect: a world with a downtime and a critical result is wrong."""
        return [
            bool(world.downtimes) and any(result.status == "CRITICAL" for result in world.results)
            for world in worlds
        ]

    worlds = (world for number in range(BATCHES) for world in batch(number).worlds)
    world = next(world for world in worlds if len(world.downtimes) > 1 and wrong([world])[0])
    small = smallest(world, wrong)
    text = differences(replace(batch(0), worlds=[small]), {"w000": {}})

    assert [len(small.downtimes), len(small.results)] == [1, 1]
    assert not small.endpoints and not small.site_groups and not small.exclusions
    assert 'name = "worlds"' in text
    assert "Downtime(" in text and "status=CRITICAL" in text
