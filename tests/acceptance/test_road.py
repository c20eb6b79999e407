"""Brokers and databases give the oracle's figures for the same input, also despite forgeries.

A policy refuses forgeries; without one they change the figures, until they are revoked. For
identities that are owners of spool elements see tests/extended/consumer/test_two_accounts.py.
At the end are signed results: old spools, a key that is replaced, and what is changed.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sam_pipeline.schema.identity.signature import load_signer, sign
from sam_pipeline.schema.program.command import BAD_DATA
from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.schema.times import format_time
from tests.oracle.oracle import STATUSES, DayReport, day_report, period
from tests.services.activemq import ActiveMQServer
from tests.services.postgres import PostgresServer, fresh_database
from tests.support.builders import metric_message, metric_result
from tests.support.commands import CLASSES, RESULT, Workplace, embedded
from tests.support.reports.stored import StoredReport, percentages, query
from tests.worlds.forgeries import CLASSES as PERMITTED_CLASSES
from tests.worlds.forgeries import (
    GROUPS,
    OWN_HOSTS,
    OWN_MONITORING_HOST,
    OWN_SITE,
    forgeries,
    permitted,
)
from tests.worlds.model import World
from tests.worlds.profile_file import to_toml
from tests.worlds.records import result_batches, topology_batches, wlcg_text
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
    ran = workplace.succeed("sam-report", "run", "--profile", profile, *PERIOD)

    assert_each_result_once(workplace, world)
    assert f"no data on {DAY_WITHOUT_DATA}" in ran.out
    assert_figures(workplace, expected)
    assert reported(workplace, days) == computed(expected)
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
        "SELECT host_name, service_flavour, metric_name, vo, gathered_at, status,"
        " coalesce(summary, '') AS summary, coalesce(performance_data, '') AS performance_data,"
        " measured_at_s FROM report_result",
    )
    found = [tuple(str(value) for value in row.values()) for row in rows]
    sent = {
        (
            *(result.host, result.flavour, result.metric, result.vo, result.gathered_at),
            *(result.status, result.summary, result.performance_data),
            *(str(int(result.measured_at.timestamp())), result.details),
        )
        for result in world.results
    }
    assert Counter(found) == Counter(of_result[:-1] for of_result in sent)


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


OF_FORGERIES = ("--from", str(FIRST_DAY), "--to", str(FIRST_DAY + timedelta(days=1)))
LEVELS = ("metrics", *FIGURE_LEVELS, GROUPS)
POLICY = f"""
mode = "enforce"
[[publisher]]
name = "grid"
is = ["{{grid}}"]
classes = ["*"]
sites = ["*"]
hosts = ["*"]
[[publisher]]
name = "elder"
is = ["{{forger}}"]
classes = {list(PERMITTED_CLASSES)}
sites = ["{OWN_SITE}"]
hosts = ["{OWN_HOSTS}"]
monitoring_hosts = ["{OWN_MONITORING_HOST}"]
"""

Reports = Mapping[str, Mapping[Any, Any]]
"""The timelines of all levels and the figures of groups, by level, then by day and names."""


@dataclass(frozen=True)
class Road:
    """How messages get to the two consumers."""

    directory: Path
    broker: ActiveMQServer
    strict: Workplace
    lenient: Workplace

    @property
    def grid(self) -> str:
        return f"broker:{self.broker.url}/{self.broker.user}"

    @property
    def forger(self) -> str:
        return f"broker:{self.broker.url}/{self.broker.other_user}"

    def publish(self, login: str, records: Sequence[tuple[str, str]], *how: str) -> None:
        """Publish texts by class, those of a class together."""
        url = f"stomp://{login}@{self.broker.host}:{self.broker.port}"
        for name in dict.fromkeys(name for name, _ in records):
            file = self.directory / "input.txt"
            file.write_text("".join(text for of, text in records if of == name))
            where = ("--destination", f"{self.strict.destination_prefix}.{name}", "--class", name)
            self.strict.succeed("sam-publish", "send", "--broker", url, *where, *how, file)

    def drain(self) -> list[int]:
        """The exit codes of `strict` and `lenient`."""
        command = ("sam-consume", "run", "--drain")
        return [place.run(*command).code for place in (self.strict, self.lenient)]


def road_of(directory: Path, broker: ActiveMQServer, postgres: PostgresServer) -> Road:
    prefix = f"/topic/forged-{uuid4()}"
    road = Road(
        directory,
        broker,
        *(
            Workplace(
                directory / name,
                broker.url,
                fresh_database(postgres),
                name=name,
                destination_prefix=prefix,
                consumer_settings=f'trusted_brokers = ["{broker.url}"]\n{policy}',
                environment={"SAM_PUBLISHER_PASSWORD_FILE": str(directory / "password")},
            )
            for name, policy in (("strict", 'policy_file = "publishers.toml"\n'), ("lenient", ""))
        ),
    )
    road.strict.write("../password", f"{broker.password}\n")
    road.strict.write("publishers.toml", POLICY.format(grid=road.grid, forger=road.forger))
    for workplace in (road.strict, road.lenient):
        workplace.write_configuration().succeed("sam-db", "upgrade")
    return road


def test_a_policy_refuses_every_forgery_and_a_revocation_removes_it(
    tmp_path: Path, activemq: ActiveMQServer, postgres: PostgresServer
) -> None:
    world = small_world(seed=3, first_day=FIRST_DAY, days=2)
    road = road_of(tmp_path, activemq, postgres)
    forged = forgeries(world)
    assert road.drain() == [0, 0]  # which subscribes

    # The world in which the forger never was.
    right = [day_report(world, PROFILE, day) for day in world.all_days]
    publish_all(road, world)

    assert_letters_of_forgeries_alone(road, world)
    report(road.lenient)
    wrong = reported(road.lenient, world.all_days)
    for name, forgery in forged.items():
        keys = [(day, *forgery.changed) for day in world.all_days]
        true = computed(right)[forgery.level]
        assert any(wrong[forgery.level].get(key) != true.get(key) for key in keys), name

    since = format_time(datetime.now(UTC) - timedelta(hours=1))
    road.lenient.succeed("sam-db", "revoke", "--publisher", road.forger, "--since", since)

    due = "SELECT day FROM report_changed_day WHERE change_no IS NULL"
    assert set(world.all_days) <= {row["day"] for row in query(road.lenient.database, due)}
    report(road.lenient)
    assert reported(road.lenient, world.all_days) == computed(right)
    assert_figures(road.lenient, right)
    assert_same_rows(road, world)


def publish_all(road: Road, world: World) -> None:
    """Topology, then results, and what the forger says."""
    forged = [
        ("metricOutput", wlcg_text(permitted(world))),
        *((each.message_class, wlcg_text(each.record)) for each in forgeries(world).values()),
    ]
    topology = [(of.message_class, of.text()) for of in topology_batches(world)]
    results = [(of.message_class, of.text()) for of in result_batches(world.results, "results")]
    road.publish(road.broker.user, topology)
    assert road.drain() == [0, 0]
    road.publish(road.broker.user, results)
    road.publish(road.broker.other_user, forged, "--raw")
    assert road.drain() == [BAD_DATA, 0]


def assert_letters_of_forgeries_alone(road: Road, world: World) -> None:
    letters = query(road.strict.database, "SELECT reason, error, body FROM dead_letter")
    errors = {bytes(letter["body"]).decode(): letter["error"] for letter in letters}
    expected = {wlcg_text(forgery.record): forgery for forgery in forgeries(world).values()}
    assert {letter["reason"] for letter in letters} == {"not-authorised"}
    assert errors.keys() == expected.keys()
    for record, forgery in expected.items():
        assert road.forger in errors[record]
        assert f"{forgery.rule}: " in errors[record]


def assert_figures(workplace: Workplace, right: Sequence[DayReport]) -> None:
    stored = StoredReport(workplace.database, PROFILE.name)
    for day in right:
        for level in FIGURE_LEVELS:
            figures = day.figures(level)
            assert stored.figures(level, day.day) == figures, level
            assert stored.percentages_of(level, day.day) == {
                key: (figure.availability, figure.reliability) for key, figure in figures.items()
            }, level


ARRIVAL = ("receivedat", "announcedat")
"""The columns of the time at which a database got a row."""


def assert_same_rows(road: Road, world: World) -> None:
    """Except that the policy let a result pass that the forger was permitted to send."""
    metric = permitted(world)["metricName"]
    for name in CLASSES:
        strict, lenient = (
            sorted(
                str(sorted((k, v) for k, v in row.items() if k.lower() not in ARRIVAL))
                for row in query(place.database, f"SELECT * FROM {name}")
            )
            for place in (road.strict, road.lenient)
        )
        if name == "metricOutput":
            [own] = [row for row in strict if metric in row]
            strict.remove(own)
        assert strict == lenient


def report(workplace: Workplace) -> None:
    profile = workplace.write("critical.toml", to_toml(PROFILE))
    workplace.succeed("sam-report", "run", "--profile", profile, *OF_FORGERIES)


def reported(workplace: Workplace, days: Sequence[date]) -> Reports:
    stored = StoredReport(workplace.database, PROFILE.name)
    return {
        level: {
            (day, *key): value
            for day in days
            for key, value in (
                stored.groups(day) if level == GROUPS else stored.timelines(level, day)
            ).items()
        }
        for level in LEVELS
    }


def computed(reports: Sequence[DayReport]) -> Reports:
    """Like `reported`, from the oracle."""
    return {
        level: {
            (report.day, *key): value
            for report in reports
            for key, value in (
                report.groups if level == GROUPS else report.timelines(level)
            ).items()
        }
        for level in LEVELS
    }


SIGNED_POLICY = """
mode = "enforce"
[[publisher]]
name = "cern"
is = ["key:nagios1"]
keys = {keys}
signed = true
classes = ["metricOutput"]
hosts = ["*.example.org"]
"""


def make_key(place: Workplace) -> str:
    """The public part of a new key."""
    found = re.search(r'"(ed25519:.+)"', place.succeed("sam-publish", "key", "add", "nagios1").out)
    assert found
    return found[1]


def accept(place: Workplace, *keys: str, days: int) -> None:
    place.write("publishers.toml", SIGNED_POLICY.format(keys=list(keys)))
    settings = f'policy_file = "publishers.toml"\nsignature_age = "{days}d"\n'
    replace(place, consumer_settings=settings).write_configuration()


def signed_result(place: Workplace, age: timedelta) -> None:
    """A result that was signed with the present key and spooled a while ago."""
    then = datetime.now(UTC) - age
    signer = load_signer(place.directory / "nagios1.pem")
    result = metric_result(timestamp=format_time(then))
    message = metric_message(result, destination="/topic/grid.probe.metricOutput")
    DirectoryQueue(place.directory / "outbox").add(sign(message, signer, then))


def loaded(place: Workplace) -> tuple[list[str], list[str]]:
    """The identity of each loaded result, and the reason of each dead letter."""
    rows = query(place.database, "SELECT publisher FROM metricOutput")
    letters = place.succeed("sam-consume", "dead-letter", "list", "--json").json
    return [str(row["publisher"]) for row in rows], sorted(row["reason"] for row in letters)


def test_old_spools_wait_as_letters_until_their_keys_and_age_are_accepted_and_forgeries_for_ever(
    tmp_path: Path,
) -> None:
    place = embedded(tmp_path)
    publisher = replace(place, environment={"SAM_PUBLISHER_SIGNING_KEY_FILE": "nagios1.pem"})
    old = make_key(place)
    publisher.succeed(*RESULT, "--metric", "changed")
    [element] = (tmp_path / "spool").glob("*/*")
    element.write_text(element.read_text().replace("metricStatus: OK", "metricStatus: CRITICAL"))
    signed_result(place, timedelta(days=2))
    (tmp_path / "nagios1.pem").rename(tmp_path / "old.pem")
    new = make_key(place)
    place.succeed(*RESULT, "--metric", "unsigned")
    publisher.succeed(*RESULT)
    place.succeed("sam-publish", "spool", "drain")
    forged = ["bad-signature", "not-authorised"]

    accept(place, new, days=1)
    assert place.run("sam-consume", "run", "--drain").code == BAD_DATA
    assert loaded(place) == (["key:nagios1"], ["bad-signature", *forged])

    for days, results, letters in ((1, 1, [*forged, "signature-expired"]), (3, 2, forged)):
        accept(place, new, old, days=days)
        place.run("sam-consume", "dead-letter", "replay", "--all")
        assert loaded(place) == (["key:nagios1"] * results, letters)
