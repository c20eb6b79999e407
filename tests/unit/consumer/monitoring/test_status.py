"""What `status`, the monitoring plugin and systemd learn about the state of a daemon."""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.core.silence import Coverage, Gap, Silence
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.errors import NoState
from sam_pipeline.consumer.monitoring.observer import CertificateLife, Observer, Reporter
from sam_pipeline.consumer.monitoring.snapshot import (
    DEGRADED,
    RUNNING,
    SILENT_AFTER,
    STOPPED,
    STUCK,
    STUCK_AFTER,
    WAITING,
    is_alive,
    read_state,
    write_state,
)
from sam_pipeline.consumer.process.signals import StopRequest
from sam_pipeline.consumer.settings import config
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.program.monitoring_plugin import NAMES
from sam_pipeline.schema.program.systemd import Notifier
from tests.services.systemd import Systemd
from tests.support.consumer.snapshot import AWAY, BROKER, NOW, snapshot
from tests.support.invoke import Answer, invoke

SECOND, DAY = timedelta(seconds=1), timedelta(days=1)


def messages(number: int) -> Counts:
    return Counts(messages_by_broker=Counter({BROKER.broker: number}))


@pytest.mark.parametrize(
    ("changes", "alive", "state", "words"),
    [
        ({}, True, RUNNING, ""),
        ({"brokers": (BROKER, AWAY)}, True, DEGRADED, "stomp://b:61613 (connection refused)"),
        (
            {"waiting_since": NOW, "waiting_for": "db: refused", "brokers": (AWAY,)},
            *(True, WAITING, "since 2026-11-20T12:30:00Z: db: refused"),
        ),
        ({"turned_at": NOW - STUCK_AFTER - SECOND}, True, STUCK, ""),
        ({"written_at": NOW - SILENT_AFTER - SECOND}, True, STUCK, ""),
        ({"ended_at": NOW, "ended_because": "schema 7, want 8"}, True, STOPPED, "schema 7, want 8"),
        ({"turned_at": NOW - STUCK_AFTER - SECOND, "waiting_since": NOW}, False, STOPPED, ""),
    ],
)
def test_a_daemon_is_in_one_of_five_states(
    changes: dict[str, Any], alive: bool, state: str, words: str
) -> None:
    health = snapshot(**changes).health(NOW, alive)

    assert (health.state, health.healthy) == (state, state == RUNNING)
    assert words in str(health)


def test_a_written_state_is_read_back_by_everyone(tmp_path: Path) -> None:
    written = snapshot(
        name="site-a@2",
        brokers=(BROKER, AWAY),
        schema="0001",
        received={"metricOutput": NOW},
        coverage=Coverage(NOW, (Gap(NOW - SECOND, NOW),)),
        silent={"class": 1, "site": 0, "probe": 1},
        silences=(Silence("class", "downtime", None, 60), Silence("probe", "h", NOW, 450)),
        certificates=(CertificateLife("host.pem", NOW, NOW + SECOND),),
        dead_letters_last_hour=3,
    )

    write_state(tmp_path / "new", written)

    assert read_state([tmp_path / "new"], "site-a@2") == written
    [file] = (tmp_path / "new").iterdir()
    assert (file.name, file.stat().st_mode & 0o777) == ("consume-site-a@2.state.json", 0o644)


@pytest.mark.parametrize("content", [None, "", "[]", '{"a": 1}', "\x00\x01"])
def test_an_unreadable_state_is_reported_with_its_path(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "consume-site-a.state.json"
    if content is not None:
        path.write_text(content)

    with pytest.raises(NoState, match=str(path)):
        read_state([tmp_path], "site-a")


def test_a_process_is_also_identified_by_its_start_time() -> None:
    assert is_alive(snapshot())
    assert not is_alive(snapshot(process_start=1))


class Home:
    """The configuration and state of a consumer, and the two commands that read them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.config = directory / "sam.toml"
        self.config.write_text('[consumer]\nname = "site-a"\nbrokers = ["spool:///in"]\n')

    def says(self, **changes: Any) -> None:
        """Write a state; a duration among the changes is a time so long ago."""
        now = datetime.now(UTC)
        ago = {key: now - value for key, value in changes.items() if isinstance(value, timedelta)}
        times = {"written_at": now, "turned_at": now, "last_commit": now}
        write_state(self._directory, snapshot(**{**times, **changes, **ago}))

    def status(self, *arguments: str, code: int = 0) -> str:
        answer = invoke("sam-consume", "--config", self.config, "status", *arguments)
        assert answer.code == code
        return answer.out or answer.err

    def check(self, *arguments: str) -> Answer:
        answer = invoke("check_sam_consumer", "--config", self.config, *arguments)
        [line] = answer.out.splitlines()
        assert line.startswith(f"SAM CONSUMER {NAMES[answer.code]} - ")
        return answer


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(config, "SERVICE_DIRECTORY", tmp_path / "none")
    return Home(tmp_path)


def test_status_of_a_healthy_daemon_exits_0(home: Home) -> None:
    silence = Silence("probe", "ce01 CE org.example.Ping", NOW, 450)
    home.says(silences=(silence,), silent={"class": 0, "site": 0, "probe": 1})

    text = home.status()

    for words in ("site-a: running", "lag           0.2 s", "bad-status: 1", silence.name, "450 s"):
        assert words in text


def test_status_as_json_has_the_state_and_all_numbers_of_an_instance(home: Home) -> None:
    absent = json.loads(home.status("--json", code=69))
    home.says(brokers=(BROKER, AWAY), spool_elements=5)
    home.says(name="site-a@2", counts=messages(99))

    output = json.loads(home.status("--json", code=69))
    other = json.loads(home.status("--instance", "2", "--json"))

    assert (output["state"], output["healthy"], output["backlog"]) == ("degraded", False, 7)
    assert output["brokers"][1]["missing"] == ["stomp://b:61613 (connection refused)"]
    assert (absent["state"], other["messages"]) == ("stopped", 99)


HOUR_AGO, MINUTES_AGO = timedelta(hours=1), timedelta(minutes=10)
"""Before the test runs, which may be long after it was collected."""


BACKLOG, SILENT = {"spool_elements": 998}, {"silent": {"class": 0, "site": 0, "probe": 1}}


@pytest.mark.parametrize(
    ("changes", "options", "code", "words"),
    [
        ({}, "", 0, "OK - site-a running"),
        ({"open_dead_letters": None, "last_commit": HOUR_AGO}, "", 0, "OK"),
        ({"last_commit": None}, "", 0, "OK"),
        ({"open_dead_letters": {"bad-status": 3}}, "", 1, "3 open dead letters (bad-status: 3)"),
        (
            {"open_dead_letters": {"bad-status": 1000, "class-broken": 3}},
            *("--warning-dead-letters 9999", 2, "a class is broken: 3"),
        ),
        ({"brokers": (BROKER, AWAY)}, "", 1, "not connected: stomp://b:61613 (connection refused)"),
        ({"waiting_since": timedelta(0)}, "", 1, "waiting: unable to commit"),
        ({"waiting_since": HOUR_AGO}, "", 2, "nothing committed for 3"),
        ({"behind_since": MINUTES_AGO}, "", 1, "nothing committed for 6"),
        ({"behind_since": HOUR_AGO}, "", 2, "nothing committed for 3"),
        ({"turned_at": HOUR_AGO}, "", 2, "stuck"),
        ({"process_start": 1}, "", 2, "stopped"),
        ({"ended_at": HOUR_AGO}, "", 2, "stopped"),
        ({"dead_letters_last_hour": 100}, "", 1, "dead letters"),
        ({"dead_letters_last_hour": 1000}, "", 2, "dead letters"),
        (BACKLOG, "--warning-backlog 1001", 0, "OK"),
        (BACKLOG, "--warning-backlog 1000", 1, "WARNING"),
        (BACKLOG, "--critical-backlog 1000", 2, "CRITICAL"),
        (SILENT, "", 1, "WARNING"),
        (SILENT, "--warning-silent-probes 2", 0, "OK"),
        (SILENT, "--critical-silent-probes 1", 2, "CRITICAL"),
    ],
)
def test_the_plugin_reports_to_a_monitoring_system(
    home: Home, changes: dict[str, Any], options: str, code: int, words: str
) -> None:
    home.says(**{"open_dead_letters": {}, **changes})

    answer = home.check(*options.split())

    assert (answer.code, words in answer.out) == (code, True), answer.out


def test_the_plugin_gives_performance_data_or_one_document(home: Home) -> None:
    home.says(counts=messages(12_345_678), spool_elements=8)

    line = home.check("--warning-backlog", "1000", "--critical-backlog", "5000").out

    data = line.partition(" | ")[2].split()
    assert {"backlog=10;1000;5000;0", "lag=0.25s;;;0", "messages=12345678c;;;0"} <= {*data}
    document = invoke("check_sam_consumer", "--config", home.config, "--json").json
    assert (document["code"], document["state"], document["backlog"]) == (1, "WARNING", 10)


@pytest.mark.parametrize(
    ("life", "left", "code"),
    [
        (365 * DAY, 15 * DAY, 0),
        (365 * DAY, 13 * DAY, 1),
        (365 * DAY, 2 * DAY, 2),
        (365 * DAY, -DAY, 2),
        (6 * DAY, 3 * DAY, 0),
        (6 * DAY, 1.9 * DAY, 1),
        (6 * DAY, 0.5 * DAY, 2),
    ],
)
def test_the_plugin_reports_certificates_that_expire(
    home: Home, life: timedelta, left: timedelta, code: int
) -> None:
    end = datetime.now(UTC).replace(microsecond=0) + left
    good = CertificateLife("ca.pem", end - life, end + 3650 * DAY)
    home.says(certificates=(good, CertificateLife("host.pem", end - life, end)))

    answer = home.check("--warning-dead-letters", "9")

    assert answer.code == code
    assert ("host.pem" in answer.out) is bool(code) and "ca.pem" not in answer.out


def test_the_plugin_is_unknown_without_state_or_configuration_or_after_a_usage_error(
    home: Home,
) -> None:
    codes = [home.check().code, home.check("--warning-age", "soon").code]
    home.config.write_text("[")

    assert [*codes, home.check().code] == [3, 3, 3]


def test_systemd_is_notified_of_readiness_and_of_turns_of_the_loop_and_a_lost_state_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = State()
    (tmp_path / f".consume-site-a.state.json.{os.getpid()}.new").mkdir()  # it cannot be written
    with (
        Systemd(str(tmp_path / "notify")) as systemd,
        closing(Notifier(systemd.address)) as notifier,
    ):
        observer = Observer("site-a", state, Inbox(10), [], {})
        reporter = Reporter(observer, StopRequest(), tmp_path, notifier)

        def heard() -> list[str]:
            reporter.tick()
            return systemd.heard()

        before = heard()
        state.cannot_commit("db.example.org:\nREADY=1\x1b[2J")
        (ready,) = heard()
        state.turned()
        turns = [*heard(), *heard()]
        for _ in range(10_000):  # more than the socket of systemd holds
            notifier.send("WATCHDOG=1")

    assert (before, turns) == ([], ["WATCHDOG=1"])
    assert ready.startswith("READY=1\nSTATUS=waiting: unable to commit since ")
    assert r"db.example.org: READY=1\x1b[2J" in ready
    assert caplog.text.count("sam-consume status` will be out of date") == 1
