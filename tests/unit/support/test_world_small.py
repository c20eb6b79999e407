"""The small world contains every case the end-to-end tests need, and is reproducible."""

from __future__ import annotations

import tomllib
from collections import Counter
from datetime import date, timedelta

import pytest

from tests.worlds.model import World, midnight
from tests.worlds.profile_file import to_toml
from tests.worlds.records import MAX_RECORDS, result_batches, topology_batches
from tests.worlds.small import LATE, OTHER_VO, PROFILE, SILENT, small_world

FIRST_DAY = date(2026, 11, 9)
DAYS = 3


@pytest.fixture(scope="module")
def world() -> World:
    return small_world(seed=1, first_day=FIRST_DAY, days=DAYS)


def test_the_same_seed_gives_the_same_bytes(world: World) -> None:
    again = small_world(seed=1, first_day=FIRST_DAY, days=DAYS)

    texts = [batch.text() for batch in result_batches(world.results, "r")]

    assert texts == [batch.text() for batch in result_batches(again.results, "r")]
    assert world == again
    assert world != small_world(seed=2, first_day=FIRST_DAY, days=DAYS)


def test_there_are_five_sites_in_two_federations(world: World) -> None:
    sites = {endpoint.site for endpoint in world.endpoints}
    federations = {
        group.group_name for group in world.site_groups if group.group_type == "federation"
    }

    assert len(sites) == 5
    assert len(federations) == 2


def test_every_day_has_results_of_every_site_but_the_silent_one(world: World) -> None:
    days_and_sites = {(result.measured_at.date(), result.site) for result in world.results}
    active_sites = {endpoint.site for endpoint in world.endpoints} - {SILENT}

    assert days_and_sites >= {(day, site) for day in world.all_days for site in active_sites}
    assert SILENT not in {site for _, site in days_and_sites}


def test_results_start_on_the_evening_before_and_end_with_the_last_day(world: World) -> None:
    times = [result.measured_at for result in world.results]

    assert midnight(FIRST_DAY) - timedelta(hours=2) <= min(times) < midnight(FIRST_DAY)
    assert max(times) < midnight(FIRST_DAY + timedelta(days=DAYS))


def test_some_results_arrive_after_newer_ones_of_the_same_metric(world: World) -> None:
    newest: dict[tuple[str, str, str], object] = {}
    late = set()
    for result in world.results:
        key = (result.host, result.metric, result.vo)
        if key in newest and result.measured_at < newest[key]:  # type: ignore[operator]
            late.add(result.site)
        newest[key] = result.measured_at

    assert late == {LATE}


def test_some_moments_have_two_statuses(world: World) -> None:
    moments = Counter(
        (result.host, result.metric, result.measured_at, result.vo, status)
        for result in world.results
        for status in [result.status]
    )
    by_moment = Counter(key[:4] for key in moments)

    assert max(by_moment.values()) == 2


def test_all_statuses_and_another_vo_occur(world: World) -> None:
    assert {result.status for result in world.results} == {"OK", "WARNING", "CRITICAL", "UNKNOWN"}
    assert OTHER_VO in {result.vo for result in world.results}


def test_two_downtimes_are_announced_and_one_of_them_twice(world: World) -> None:
    announcements = Counter(downtime.downtime_id for downtime in world.downtimes)

    assert sorted(announcements.values()) == [1, 2]


def test_batches_hold_every_record_once_and_have_unique_names(world: World) -> None:
    batches = [*topology_batches(world), *result_batches(world.results, "results")]

    records = sum(len(batch.records) for batch in batches if batch.message_class == "metricOutput")

    assert records == len(world.results)
    assert max(len(batch.records) for batch in batches) <= MAX_RECORDS
    assert len({batch.name for batch in batches}) == len(batches)


def test_the_profile_file_is_toml_with_every_metric() -> None:
    content = tomllib.loads(to_toml(PROFILE))

    assert content["name"] == "critical"
    assert content["vo"] == "ops"
    assert {name: tuple(flavour["metrics"]) for name, flavour in content["flavours"].items()} == {
        name: flavour.metrics for name, flavour in PROFILE.flavours.items()
    }
