"""Every pair of broker and database gives the oracle's figures for the same input.

Each road is taken once, by the installed commands; the tests check the database afterwards.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.oracle import STATUSES, DayReport, day_report, period
from tests.services.postgres import fresh_database
from tests.support.commands import Answer, Workplace
from tests.support.reports.stored import StoredReport, percentages, query
from tests.worlds.model import World
from tests.worlds.profile_file import to_toml
from tests.worlds.records import result_batches, topology_batches
from tests.worlds.small import PROFILE, small_world

FIRST_DAY = date(2024, 2, 28)  # the second day is a leap day
DAYS = 2
DAY_WITHOUT_DATA = FIRST_DAY - timedelta(days=2)
PERIOD = ["--from", str(DAY_WITHOUT_DATA), "--to", str(FIRST_DAY + timedelta(days=1))]
FIGURE_LEVELS = ("endpoints", "services", "functions", "sites")
LEVELS = ("metrics", *FIGURE_LEVELS)


@dataclass(frozen=True)
class Road:
    """The workplace of a road, and the output of the consumer and the report."""

    workplace: Workplace
    drained: Answer
    reported: Answer

    @property
    def stored(self) -> StoredReport:
        return StoredReport(self.workplace.database, PROFILE.name)


@pytest.fixture(scope="module")
def world() -> World:
    return small_world(seed=3, first_day=FIRST_DAY, days=DAYS)


@pytest.fixture(scope="module")
def expected(world: World) -> list[DayReport]:
    """The oracle's reports from the day without data on; the next day has results at its end."""
    days = [DAY_WITHOUT_DATA, DAY_WITHOUT_DATA + timedelta(days=1), *world.all_days]
    return [day_report(world, PROFILE, day) for day in days]


@pytest.fixture(
    scope="module",
    params=["spool to SQLite", "ActiveMQ to PostgreSQL", "RabbitMQ to PostgreSQL"],
)
def road(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, world: World
) -> Road:
    workplace = _workplace(request, tmp_path_factory.mktemp("road"))
    workplace.succeed("sam-db", "upgrade")
    workplace.succeed("sam-consume", "run", "--drain")  # subscribes
    _publish(workplace, world)
    profile = workplace.write("critical.toml", to_toml(PROFILE))
    return Road(
        workplace,
        drained=workplace.run("sam-consume", "run", "--drain"),
        reported=workplace.run("sam-report", "run", "--profile", profile, *PERIOD),
    )


def test_every_result_is_loaded_exactly_once(road: Road, world: World) -> None:
    rows = [
        tuple(str(value) for value in row.values())
        for row in query(
            road.workplace.database,
            "SELECT host_name, service_flavour, metric_name, vo, gathered_at, measured_at_s"
            " FROM report_result",
        )
    ]

    assert road.drained.code == 0, str(road.drained)
    assert len(rows) == len(set(rows))
    assert set(rows) == _natural_keys(world)


def test_the_figures_of_all_levels_equal_the_oracles(road: Road, expected: list[DayReport]) -> None:
    assert road.reported.code == 0, str(road.reported)
    for day in expected:
        for level in FIGURE_LEVELS:
            figures = day.figures(level)
            assert road.stored.figures(level, day.day) == figures, level
            assert road.stored.percentages_of(level, day.day) == {
                key: (figure.availability, figure.reliability) for key, figure in figures.items()
            }, level
        assert road.stored.groups(day.day) == day.groups


def test_the_timelines_of_all_levels_equal_the_oracles(
    road: Road, expected: list[DayReport]
) -> None:
    for day in expected:
        for level in LEVELS:
            assert road.stored.timelines(level, day.day) == day.timelines(level), level


def test_show_adds_up_the_seconds_of_a_period_before_dividing(
    road: Road, expected: list[DayReport]
) -> None:
    shown = road.workplace.succeed("sam-report", "show", "--level", "site", *PERIOD, "--json").json

    days = [day.figures("sites") for day in expected]
    sums = {site: period([day[(site,)] for day in days]) for (site,) in days[0]}
    assert {row["site"]: _seconds(row) for row in shown} == {
        site: figures.seconds for site, figures in sums.items()
    }
    assert {row["site"]: percentages(row) for row in shown} == {
        site: (figures.availability, figures.reliability) for site, figures in sums.items()
    }


def test_a_day_without_data_is_reported_as_such(road: Road) -> None:
    shown = road.workplace.succeed("sam-report", "show", "--day", str(DAY_WITHOUT_DATA))

    assert f"no data on {DAY_WITHOUT_DATA}" in road.reported.out
    assert shown.out.count("no data") == 5  # sites


def _workplace(request: pytest.FixtureRequest, directory: Path) -> Workplace:
    broker, _, database = request.param.partition(" to ")
    return Workplace(
        directory,
        broker=(
            f"spool://{directory / 'spool'}"
            if broker == "spool"
            else request.getfixturevalue(broker.lower()).url
        ),
        database=(
            f"sqlite:///{directory / 'sam.db'}"
            if database == "SQLite"
            else fresh_database(request.getfixturevalue("postgres"))
        ),
        name="road",
        destination_prefix="/topic/road",
    ).write_configuration()


def _publish(workplace: Workplace, world: World) -> None:
    """Publish the world as messages, each of them twice, as brokers may do."""
    batches = [*topology_batches(world), *result_batches(world.results, "results")]
    for message_class in dict.fromkeys(batch.message_class for batch in batches):
        files = [
            workplace.write(f"input/{batch.name}.txt", batch.text())
            for batch in batches
            if batch.message_class == message_class
        ]
        _send(workplace, message_class, files)
    for _ in range(2):
        shutil.copytree(
            workplace.directory / "week", workplace.directory / "outbox", dirs_exist_ok=True
        )
        workplace.succeed("sam-publish", "spool", "drain", "--timeout", "60")
    assert workplace.spooled("outbox") == 0


def _send(workplace: Workplace, message_class: str, files: Sequence[Path]) -> None:
    into_week = ["--broker", f"spool://{workplace.directory / 'week'}"]
    where = ["--class", message_class, "--destination", f"/topic/road.{message_class}"]
    workplace.succeed("sam-publish", "send", *into_week, *where, *files)


def _natural_keys(world: World) -> set[tuple[str, ...]]:
    return {
        (
            result.host,
            result.flavour,
            result.metric,
            result.vo,
            result.gathered_at,
            str(int(result.measured_at.timestamp())),
        )
        for result in world.results
    }


def _seconds(row: Mapping[str, Any]) -> dict[str, int]:
    return {status: row[f"{status.lower()}_s"] for status in STATUSES}
