"""Every pair of broker and database gives the oracle's figures for the same input."""

from __future__ import annotations

import shutil
from datetime import date, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from tests.oracle.oracle import STATUSES, DayReport, day_report, period
from tests.services.postgres import fresh_database
from tests.support.commands import Workplace
from tests.support.reports.stored import StoredReport, percentages, query
from tests.worlds.model import World
from tests.worlds.profile_file import to_toml
from tests.worlds.records import result_batches, topology_batches
from tests.worlds.small import PROFILE, small_world

FIRST_DAY = date(2024, 2, 28)  # the second day is a leap day
DAY_WITHOUT_DATA = FIRST_DAY - timedelta(days=2)
PERIOD = ["--from", str(DAY_WITHOUT_DATA), "--to", str(FIRST_DAY + timedelta(days=1))]
FIGURE_LEVELS = ("endpoints", "services", "functions", "sites")
DRAIN = ("sam-consume", "run", "--drain")


@pytest.fixture(params=["spool to SQLite", "ActiveMQ to PostgreSQL", "RabbitMQ to PostgreSQL"])
def workplace(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    broker, _, database = request.param.partition(" to ")
    return Workplace(
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
        destination_prefix=f"/topic/road-{uuid4()}",
    ).write_configuration()


def test_published_results_are_loaded_once_and_give_the_figures_of_the_oracle(
    workplace: Workplace,
) -> None:
    world = small_world(seed=3, first_day=FIRST_DAY, days=2)
    days = [DAY_WITHOUT_DATA, DAY_WITHOUT_DATA + timedelta(days=1), *world.all_days]
    expected = [day_report(world, PROFILE, day) for day in days]
    workplace.succeed("sam-db", "upgrade")
    workplace.succeed(*DRAIN)  # subscribes

    publish_twice(workplace, world)
    workplace.succeed(*DRAIN)
    profile = workplace.write("critical.toml", to_toml(PROFILE))
    reported = workplace.succeed("sam-report", "run", "--profile", profile, *PERIOD)

    assert_each_result_once(workplace, world)
    assert f"no data on {DAY_WITHOUT_DATA}" in reported.out
    stored = StoredReport(workplace.database, PROFILE.name)
    for day in expected:
        for level in FIGURE_LEVELS:
            figures = day.figures(level)
            assert stored.figures(level, day.day) == figures, level
            assert stored.percentages_of(level, day.day) == {
                key: (figure.availability, figure.reliability) for key, figure in figures.items()
            }, level
        for level in ("metrics", *FIGURE_LEVELS):
            assert stored.timelines(level, day.day) == day.timelines(level), level
        assert stored.groups(day.day) == day.groups
    assert_show_adds_up_seconds(workplace, expected)
    empty = workplace.succeed("sam-report", "show", "--day", str(DAY_WITHOUT_DATA))
    assert empty.out.count("no data") == 5  # sites


def publish_twice(workplace: Workplace, world: World) -> None:
    """Publish the world as messages, each of them twice, as brokers may do."""
    batches = [*topology_batches(world), *result_batches(world.results, "results")]
    week = f"spool://{workplace.directory / 'week'}"
    for name in dict.fromkeys(batch.message_class for batch in batches):
        files = [
            workplace.write(f"input/{batch.name}.txt", batch.text())
            for batch in batches
            if batch.message_class == name
        ]
        where = ("--class", name, "--destination", f"{workplace.destination_prefix}.{name}")
        workplace.succeed("sam-publish", "send", "--broker", week, *where, *files)
    for _ in range(2):
        shutil.copytree(
            workplace.directory / "week", workplace.directory / "outbox", dirs_exist_ok=True
        )
        workplace.succeed("sam-publish", "spool", "drain", "--timeout", "60")
    assert workplace.spooled("outbox") == 0


def assert_each_result_once(workplace: Workplace, world: World) -> None:
    rows = query(
        workplace.database,
        "SELECT host_name, service_flavour, metric_name, vo, gathered_at, measured_at_s"
        " FROM report_result",
    )
    keys = [tuple(str(value) for value in row.values()) for row in rows]
    assert len(keys) == len(set(keys))
    assert set(keys) == {
        (
            *(result.host, result.flavour, result.metric, result.vo, result.gathered_at),
            str(int(result.measured_at.timestamp())),
        )
        for result in world.results
    }


def assert_show_adds_up_seconds(workplace: Workplace, expected: list[DayReport]) -> None:
    """Those of a period, before it divides."""
    shown = workplace.succeed("sam-report", "show", "--level", "site", *PERIOD, "--json").json
    days = [day.figures("sites") for day in expected]
    sums = {site: period([day[(site,)] for day in days]) for (site,) in days[0]}

    for row in shown:
        figures = sums.pop(row["site"])
        assert {status: row[f"{status.lower()}_s"] for status in STATUSES} == figures.seconds
        assert percentages(row) == (figures.availability, figures.reliability)
    assert sums == {}
