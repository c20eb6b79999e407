"""Forgeries: a policy refuses them; without one they change the figures, until they are revoked.

On each road, everything is published once, by the grid and by a forger with a login of its own. Two
consumers receive it: `strict` enforces a policy, and `lenient` has none.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.schema.times import format_time
from tests.oracle.oracle import DayReport, day_report
from tests.services import PRIVILEGED, missing
from tests.services.broker import StompServer
from tests.services.postgres import fresh_database
from tests.support.commands import CLASSES, Answer, Workplace
from tests.support.reports.stored import StoredReport, query
from tests.worlds.forgeries import (
    CLASSES as PERMITTED_CLASSES,
)
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

BAD_DATA = 65
FIRST_DAY, DAYS = date(2024, 2, 28), 2
DRAIN = ("sam-consume", "run", "--drain")
PERIOD = ("--from", str(FIRST_DAY), "--to", str(FIRST_DAY + timedelta(days=DAYS - 1)))
FIGURE_LEVELS = ("endpoints", "services", "functions", "sites")
GRID, FORGER = "grid", "forger"
UIDS = {GRID: 40001, FORGER: 40666}
NOT_AUTHORISED = "not-authorised"
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

Send = Callable[[str, str, Sequence[str | Path]], None]
"""Runs `sam-publish send`, as the grid or the forger, for records of a class."""


@dataclass(frozen=True)
class Road:
    """How messages get to the two consumers."""

    directory: Path
    strict: Workplace
    lenient: Workplace
    identities: Mapping[str, str]
    send: Send

    def publish(self, publisher: str, records: Sequence[tuple[str, str]]) -> None:
        """Publish texts by class; the forger sends those of a class unchanged, in one message."""
        for message_class in dict.fromkeys(name for name, _ in records):
            file = self.directory / "input.txt"
            file.write_text("".join(text for name, text in records if name == message_class))
            how = ("--class", message_class, *(["--raw"] if publisher == FORGER else []))
            self.send(publisher, message_class, (*how, file))

    def run_both(self, *command: str) -> tuple[Answer, Answer]:
        """The command of `strict` and that of `lenient`, at the same time."""
        with ThreadPoolExecutor() as executor:
            strict, lenient = executor.map(
                lambda workplace: workplace.run(*command), (self.strict, self.lenient)
            )
        return strict, lenient


@dataclass(frozen=True)
class Revoked:
    """The revocation of what the forger said to `lenient`."""

    wrong: Mapping[str, Mapping[Any, Any]]
    """What the reports said before, by level; of all days."""
    due: Sequence[str]
    """The days whose reports the revocation made due."""


@pytest.fixture(scope="module")
def world() -> World:
    return small_world(seed=3, first_day=FIRST_DAY, days=DAYS)


@pytest.fixture(scope="module")
def expected(world: World) -> list[DayReport]:
    """The oracle's reports of the world in which the forger never was."""
    return [day_report(world, PROFILE, day) for day in world.all_days]


@pytest.fixture(scope="module", params=["spool to SQLite", "ActiveMQ to PostgreSQL"])
def road(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, world: World
) -> Road:
    """A road on which everything has arrived."""
    directory = tmp_path_factory.mktemp("forged")
    road = _spool_road(directory) if "spool" in request.param else _broker_road(request, directory)
    early, late = [], [("metricOutput", wlcg_text(permitted(world)))]
    for forgery in forgeries(world).values():
        part = early if forgery.is_early else late
        part.append((forgery.message_class, wlcg_text(forgery.record)))
    for command in (("sam-db", "upgrade"), DRAIN):  # which subscribes
        assert [answer.code for answer in road.run_both(*command)] == [0, 0]
    road.publish(FORGER, early)
    road.publish(GRID, [(of.message_class, of.text()) for of in topology_batches(world)])
    first = [answer.code for answer in road.run_both(*DRAIN)]
    results = result_batches(world.results, "results")
    road.publish(GRID, [(of.message_class, of.text()) for of in results])
    road.publish(FORGER, late)
    second = [answer.code for answer in road.run_both(*DRAIN)]
    assert (first, second) == ([BAD_DATA, 0], [BAD_DATA, 0])
    return road


@pytest.fixture(scope="module")
def revoked(road: Road, world: World) -> Revoked:
    _report(road.lenient)
    wrong = _reported(road.lenient, world)
    since = format_time(datetime.now(UTC) - timedelta(hours=1))
    road.lenient.succeed(
        "sam-db", "revoke", "--publisher", road.identities[FORGER], "--since", since
    )
    due = [
        str(row["day"])
        for row in query(
            road.lenient.database, "SELECT day FROM report_changed_day WHERE change_no IS NULL"
        )
    ]
    _report(road.lenient)
    return Revoked(wrong, due)


def test_a_policy_makes_a_dead_letter_of_every_forgery_and_of_nothing_else(
    road: Road, world: World
) -> None:
    letters = query(road.strict.database, "SELECT reason, error, body FROM dead_letter")

    errors = {bytes(letter["body"]).decode(): letter["error"] for letter in letters}
    expected = {wlcg_text(forgery.record): forgery for forgery in forgeries(world).values()}
    assert {letter["reason"] for letter in letters} == {NOT_AUTHORISED}
    assert errors.keys() == expected.keys()
    for record, forgery in expected.items():
        error = errors[record]
        assert road.identities[FORGER] in error
        assert f"{forgery.rule}: " in error


def test_without_a_policy_every_forgery_changes_the_report(
    revoked: Revoked, expected: list[DayReport], world: World
) -> None:
    right = _computed(expected)

    for name, forgery in forgeries(world).items():
        wrong = revoked.wrong[forgery.level]
        keys = [(day, *forgery.changed) for day in world.all_days]
        assert any(wrong.get(key) != right[forgery.level].get(key) for key in keys), name


def test_after_the_revocation_the_reports_are_those_of_a_world_without_the_forger(
    road: Road, revoked: Revoked, expected: list[DayReport], world: World
) -> None:
    stored = StoredReport(road.lenient.database, PROFILE.name)

    assert {str(day) for day in world.all_days} <= set(revoked.due)
    assert _reported(road.lenient, world) == _computed(expected)
    for day in expected:
        for level in FIGURE_LEVELS:
            figures = day.figures(level)
            assert stored.figures(level, day.day) == figures, level
            assert stored.percentages_of(level, day.day) == {
                key: (figure.availability, figure.reliability) for key, figure in figures.items()
            }, level


def test_a_policy_and_a_revocation_leave_the_same_rows(
    road: Road, revoked: Revoked, world: World
) -> None:
    """Except that the policy let a result pass that the forger was permitted to send."""
    strict, lenient = map(_views, (road.strict, road.lenient))

    metric = permitted(world)["metricName"]
    [own] = [row for row in strict["metricOutput"] if metric in row]
    strict["metricOutput"].remove(own)
    assert strict == lenient


def _views(workplace: Workplace) -> dict[str, list[str]]:
    """The rows of all class views, without the times at which they were stored."""
    views: dict[str, list[str]] = {}
    for name in CLASSES:
        rows = query(workplace.database, f"SELECT * FROM {name}")
        views[name] = sorted(
            str(sorted((key, value) for key, value in row.items() if key.lower() != "receivedat"))
            for row in rows
        )
    return views


def _report(workplace: Workplace) -> None:
    profile = workplace.write("critical.toml", to_toml(PROFILE))
    workplace.succeed("sam-report", "run", "--profile", profile, *PERIOD)


def _reported(workplace: Workplace, world: World) -> dict[str, dict[Any, Any]]:
    """The timelines of all levels and the figures of groups, as stored, by day and names."""
    stored = StoredReport(workplace.database, PROFILE.name)
    return {
        level: {
            (day, *key): value
            for day in world.all_days
            for key, value in (
                stored.groups(day) if level == GROUPS else stored.timelines(level, day)
            ).items()
        }
        for level in ("metrics", *FIGURE_LEVELS, GROUPS)
    }


def _computed(reports: Sequence[DayReport]) -> dict[str, dict[Any, Any]]:
    """Like `_reported`, from the oracle."""
    return {
        level: {
            (report.day, *key): value
            for report in reports
            for key, value in (
                report.groups if level == GROUPS else report.timelines(level)
            ).items()
        }
        for level in ("metrics", *FIGURE_LEVELS, GROUPS)
    }


def _spool_road(directory: Path) -> Road:
    """The identities are the owners of the elements."""
    if os.geteuid() != 0:
        missing("other accounts", PRIVILEGED)
    identities = {publisher: f"uid:{uid}" for publisher, uid in UIDS.items()}
    workplaces = []
    for name in ("strict", "lenient"):
        broker = f"spool://{directory / name / 'spool'}"
        database = f"sqlite:///{directory / name / 'sam.db'}"
        workplaces.append(_consumer(directory / name, broker, database, identities))
    strict, lenient = workplaces

    def send(publisher: str, message_class: str, arguments: Sequence[str | Path]) -> None:
        box = directory / "box"
        strict.succeed("sam-publish", "send", "--broker", f"spool://{box}", *arguments)
        for workplace in workplaces:
            shutil.copytree(box, workplace.directory / "spool", dirs_exist_ok=True)
            for element in (workplace.directory / "spool").glob("*/*"):
                if element.stat().st_uid not in UIDS.values():
                    os.chown(element, UIDS[publisher], -1)
        shutil.rmtree(box)

    return Road(directory, strict, lenient, identities, send)


def _broker_road(request: pytest.FixtureRequest, directory: Path) -> Road:
    """The identities are the logins, for which the broker vouches."""
    broker: StompServer = request.getfixturevalue("activemq")
    logins = {GRID: broker.user, FORGER: broker.other_user}
    identities = {publisher: f"broker:{broker.url}/{login}" for publisher, login in logins.items()}
    workplaces = []
    for name in ("strict", "lenient"):
        database = fresh_database(request.getfixturevalue("postgres"))
        workplaces.append(_consumer(directory / name, broker.url, database, identities))
    strict, lenient = workplaces

    def send(publisher: str, message_class: str, arguments: Sequence[str | Path]) -> None:
        url = f"stomp://{logins[publisher]}@{broker.host}:{broker.port}"
        destination = f"{strict.destination_prefix}.{message_class}"
        where = ("--broker", url, "--destination", destination)
        strict.succeed("sam-publish", "send", *where, *arguments)

    return Road(directory, strict, lenient, identities, send)


def _consumer(
    directory: Path, broker: str, database: str, identities: Mapping[str, str]
) -> Workplace:
    """A consumer; with a policy if it is strict."""
    directory.mkdir()
    settings = "" if broker.startswith("spool:") else f'vouches = ["{broker}"]\n'
    if directory.name == "strict":
        (directory / "publishers.toml").write_text(POLICY.format(**identities))
        settings += f'publishers = "{directory}/publishers.toml"\n'
    workplace = Workplace(
        directory,
        broker,
        database,
        name=directory.name,
        destination_prefix="/topic/forged",
        consumer_settings=settings,
        environment={"SAM_PUBLISHER_PASSWORD_FILE": str(directory / "password")},
    )
    workplace.write("password", f"{StompServer.password}\n")
    return workplace.write_configuration()
