"""The road on each pair of broker and database: the same input gives the oracle's figures."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.commands import Workplace
from tests.acceptance.stored import STATUSES, StoredReport, percentages, query
from tests.oracle import DayReport, day_report, period
from tests.services.postgres import fresh_database
from tests.world.model import World
from tests.world.profile_file import to_toml
from tests.world.records import result_batches, topology_batches
from tests.world.small import PROFILE, small_world

FIRST_DAY = date(2024, 2, 28)  # the second day is a leap day
DAYS = 2


@pytest.fixture(scope="module")
def world() -> World:
    return small_world(seed=3, first_day=FIRST_DAY, days=DAYS)


@pytest.fixture(scope="module")
def expected(world: World) -> list[DayReport]:
    return [day_report(world, PROFILE, day) for day in world.all_days]


@pytest.fixture(params=["spool to SQLite", "ActiveMQ to PostgreSQL", "RabbitMQ to PostgreSQL"])
def road(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    """A workplace with the schema applied and, where there is a broker, subscribed to it."""
    broker, _, database = request.param.partition(" to ")
    place = Workplace(
        tmp_path,
        broker=(
            f"spool://{tmp_path / 'spool'}"
            if broker == "spool"
            else request.getfixturevalue(broker.lower()).url
        ),
        database=(
            f"sqlite:///{tmp_path / 'sam.db'}"
            if database == "SQLite"
            else fresh_database(request.getfixturevalue("postgres"))
        ),
        name="road",
        destination_prefix="/topic/road",
    )
    place.write_configuration()
    place.succeed("sam-db", "upgrade")
    place.succeed("sam-consume", "run", "--drain")
    return place


def test_the_road_gives_the_figures_of_the_oracle(
    road: Workplace, world: World, expected: list[DayReport]
) -> None:
    _publish(road, world)

    drained = road.run("sam-consume", "run", "--drain")
    reported = road.run("sam-report", "run", "--profile", _profile(road), *_days(world))

    assert drained.code == 0, str(drained)
    assert reported.code == 0, str(reported)
    assert _distinct_results(world) == _stored_results(road)
    for day in expected:
        _assert_equal(StoredReport(road.database, PROFILE.name), day)
    _assert_shown(road, world, expected)


def _publish(road: Workplace, world: World) -> None:
    """Everything as messages, each of them twice, as brokers may do."""
    batches = [*topology_batches(world), *result_batches(world.results, "results")]
    for message_class in dict.fromkeys(batch.message_class for batch in batches):
        files = [
            road.write(f"input/{batch.name}.txt", batch.text())
            for batch in batches
            if batch.message_class == message_class
        ]
        _send(road, message_class, files)
    for _ in range(2):
        shutil.copytree(road.directory / "week", road.directory / "outbox", dirs_exist_ok=True)
        road.succeed("sam-publish", "spool", "drain", "--timeout", "60")
    assert road.spooled("outbox") == 0


def _send(road: Workplace, message_class: str, files: Sequence[Path]) -> None:
    into_week = ["--broker", f"spool://{road.directory / 'week'}"]
    where = ["--class", message_class, "--destination", f"/topic/road.{message_class}"]
    road.succeed("sam-publish", "send", *into_week, *where, *files)


def _days(world: World) -> list[str]:
    return ["--from", str(world.first_day), "--to", str(world.last_day)]


def _profile(road: Workplace) -> Path:
    return road.write("critical.toml", to_toml(PROFILE))


def _distinct_results(world: World) -> set[tuple[str, ...]]:
    return {
        (result.host, result.flavour, result.metric, result.vo, result.gathered_at, str(at))
        for result in world.results
        for at in [int(result.measured_at.timestamp())]
    }


def _stored_results(road: Workplace) -> set[tuple[str, ...]]:
    rows = query(
        road.database,
        "SELECT r.host_name, r.service_flavour, r.metric_name, r.vo, r.gathered_at,"
        " r.measured_at_s FROM report_result AS r",
    )
    assert len(rows) == len({tuple(row.values()) for row in rows})
    return {tuple(str(value) for value in row.values()) for row in rows}


def _assert_equal(stored: StoredReport, day: DayReport) -> None:
    for level in ("endpoints", "services", "functions", "sites"):
        figures = day.figures(level)
        assert stored.figures(level, day.day) == figures, level
        assert stored.percentages_of(level, day.day) == {
            key: (one.availability, one.reliability) for key, one in figures.items()
        }, level
    for level in ("metrics", "endpoints", "services", "functions", "sites"):
        assert stored.timelines(level, day.day) == day.timelines(level), level
    assert stored.groups(day.day) == day.groups


def _assert_shown(road: Workplace, world: World, expected: Sequence[DayReport]) -> None:
    """`show` sums the seconds of a period before it divides."""
    shown = road.succeed("sam-report", "show", "--level", "site", *_days(world), "--json").json

    days = [day.figures("sites") for day in expected]
    sums = {site: period([day[(site,)] for day in days]) for (site,) in days[0]}
    assert {row["site"]: _seconds(row) for row in shown} == {
        site: one.seconds for site, one in sums.items()
    }
    assert {row["site"]: percentages(row) for row in shown} == {
        site: (one.availability, one.reliability) for site, one in sums.items()
    }


def _seconds(row: Mapping[str, Any]) -> dict[str, int]:
    return {status: row[f"{status.lower()}_s"] for status in STATUSES}
