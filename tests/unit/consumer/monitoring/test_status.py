"""What `status` and the monitoring plugin report about the last snapshot of a daemon."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.consumer import cli
from sam_pipeline.consumer.commands import nagios
from sam_pipeline.consumer.errors import NoState
from sam_pipeline.consumer.monitoring.certificates import CertificateLife
from sam_pipeline.consumer.monitoring.snapshot import (
    DEGRADED,
    RUNNING,
    SILENT_AFTER,
    STOPPED,
    STUCK,
    STUCK_AFTER,
    WAITING,
    Snapshot,
)
from sam_pipeline.consumer.monitoring.state_file import (
    is_alive,
    read_state,
    write_state,
)
from sam_pipeline.consumer.settings import config
from sam_pipeline.consumer.silence.coverage import Coverage, Gap
from sam_pipeline.consumer.silence.silences import Silence
from sam_pipeline.schema.program.monitoring_plugin import NAMES
from tests.support.consumer.snapshot import AWAY, BROKER, NOW, snapshot

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("written", "alive", "state"),
    [
        (snapshot(), True, RUNNING),
        (snapshot(brokers=(BROKER, AWAY)), True, DEGRADED),
        (snapshot(waiting_since=NOW, waiting_for="refused", brokers=(AWAY,)), True, WAITING),
        (snapshot(turned_at=NOW - STUCK_AFTER - SECOND), True, STUCK),
        (snapshot(written_at=NOW - SILENT_AFTER - SECOND), True, STUCK),
        (snapshot(), False, STOPPED),
        (snapshot(ended_at=NOW), True, STOPPED),
        (snapshot(turned_at=NOW - STUCK_AFTER - SECOND, waiting_since=NOW), False, STOPPED),
    ],
)
def test_a_daemon_is_in_one_of_five_states(written: Snapshot, alive: bool, state: str) -> None:
    assert written.health(NOW, alive).state == state


def test_only_a_running_daemon_is_healthy() -> None:
    healths = [snapshot().health(NOW), snapshot(brokers=(AWAY,)).health(NOW)]

    assert [health.healthy for health in healths] == [True, False]


def test_the_health_has_its_start_and_reason() -> None:
    waiting = snapshot(waiting_since=NOW, waiting_for="db: connection refused").health(NOW)
    ended = snapshot(ended_at=NOW, ended_because="schema 7, want 8").health(NOW)

    assert str(waiting) == (
        "waiting: unable to commit since 2026-11-20T12:30:00Z: db: connection refused"
    )
    assert str(ended) == "stopped: ended (schema 7, want 8) at 2026-11-20T12:30:00Z"
    assert "stomp://b:61613 (connection refused)" in str(snapshot(brokers=(AWAY,)).health(NOW))


def test_a_written_state_is_read_back(tmp_path: Path) -> None:
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
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["consume-site-a@2.state.json"]


def test_a_state_file_is_readable_by_everyone(tmp_path: Path) -> None:
    write_state(tmp_path, snapshot())

    assert (tmp_path / "consume-site-a.state.json").stat().st_mode & 0o777 == 0o644


def test_of_two_state_files_that_of_the_running_process_counts(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    write_state(old, snapshot(messages=1))
    dead = snapshot(process_start=1, written_at=NOW + SECOND)
    write_state(new, dead)

    assert read_state([new, old], "site-a").messages == 1


@pytest.mark.parametrize(
    ("content", "stem"),
    [
        (None, "no such file"),
        ("", "not written by this version"),
        ("[]", "not written by this version"),
        ('{"consumer": "site-a"}', "not written by this version"),
        ("\x00\x01", "not written by this version"),
    ],
)
def test_an_unreadable_state_is_reported_with_its_path(
    tmp_path: Path, content: str | None, stem: str
) -> None:
    path = tmp_path / "consume-site-a.state.json"
    if content is not None:
        path.write_text(content)

    with pytest.raises(NoState, match=stem) as caught:
        read_state([tmp_path], "site-a")
    assert str(path) in str(caught.value)


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
        now = datetime.now(UTC)
        written = snapshot(**{"written_at": now, "turned_at": now, "last_commit": now, **changes})
        write_state(self._directory, written)

    def status(self, *arguments: str) -> int:
        return cli.main(["--config", str(self.config), "status", *arguments])

    def check(self, *arguments: str) -> int:
        return nagios.main(["--config", str(self.config), *arguments])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(config, "SERVICE_DIRECTORY", tmp_path / "none")
    return Home(tmp_path)


def test_status_of_a_healthy_daemon_exits_0(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.says()

    assert home.status() == 0
    output = capsys.readouterr().out
    for stem in (
        "site-a: running",
        "lag           0.2 s",
        "backlog       2 messages; 700 bytes",
        "15.0 messages/s, 30.0 rows/s",
        "1 new (bad-status: 1)",
        "does not allow 4 records (nagios-cern: 4)",
        "colour: 3",
        "stomp://a:61613",
        "metricOutput    14",
    ):
        assert stem in output


def test_status_of_a_daemon_that_cannot_commit_exits_69(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.says(waiting_since=NOW, waiting_for="connection refused")

    assert home.status() == 69
    assert "site-a: waiting: unable to commit since" in capsys.readouterr().out


def test_status_as_json_has_the_state_and_all_numbers(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.says(brokers=(BROKER, AWAY), spool_elements=5)

    assert home.status("--json") == 69
    output = json.loads(capsys.readouterr().out)
    assert (output["state"], output["healthy"], output["backlog"]) == ("degraded", False, 7)
    assert output["brokers"][1]["missing"] == ["stomp://b:61613 (connection refused)"]
    assert output["since"] == "2026-11-20T12:30:00Z"


def test_status_of_an_instance_is_its_own(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.says()
    home.says(name="site-a@2", messages=99)

    assert home.status("--instance", "2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["messages"] == 99


def test_status_without_a_daemon_exits_69(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert home.status() == 69
    assert "no state of a daemon named 'site-a'" in capsys.readouterr().err

    assert home.status("--json") == 69
    assert json.loads(capsys.readouterr().out)["state"] == "stopped"


NOW_THEN = timedelta(0)
HOUR_AGO = timedelta(hours=1)
MINUTES_AGO = timedelta(minutes=10)
"""Before the test runs, which may be long after it was collected."""


@pytest.mark.parametrize(
    ("changes", "code", "stem"),
    [
        ({"open_dead_letters": {}}, 0, "OK - site-a running"),
        ({"open_dead_letters": None, "last_commit": HOUR_AGO}, 0, "OK"),
        ({"open_dead_letters": {}, "last_commit": None}, 0, "OK"),
        ({"open_dead_letters": {"bad-status": 3}}, 1, "3 open dead letters"),
        ({"brokers": (BROKER, AWAY)}, 1, "not connected: stomp://b:61613 (connection refused)"),
        ({"waiting_since": NOW_THEN}, 1, "waiting: unable to commit"),
        ({"waiting_since": HOUR_AGO}, 2, "nothing committed for 3"),
        ({"behind_since": MINUTES_AGO}, 1, "nothing committed for 6"),
        ({"behind_since": HOUR_AGO}, 2, "nothing committed for 3"),
        ({"turned_at": HOUR_AGO}, 2, "stuck"),
        ({"process_start": 1}, 2, "stopped"),
        ({"ended_at": HOUR_AGO}, 2, "stopped"),
    ],
)
def test_the_plugin_reports_to_a_monitoring_system(
    home: Home,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    code: int,
    stem: str,
) -> None:
    now = datetime.now(UTC)
    ago = {key: now - value for key, value in changes.items() if isinstance(value, timedelta)}
    home.says(**{**changes, **ago})

    assert home.check() == code
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"SAM CONSUMER {NAMES[code]} - ")
    assert stem in line


def test_the_plugin_gives_performance_data(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.says(messages=12_345_678, spool_elements=8)

    home.check("--warning-backlog", "1000", "--critical-backlog", "5000")

    data = capsys.readouterr().out.partition(" | ")[2].split()
    assert data[1:] == [
        "backlog=10;1000;5000;0",
        "dead_letters=1;1;;0",
        "dead_letters_per_hour=0;100;1000;0",
        "silent_classes=0;;1;0",
        "silent_sites=0;1;;0",
        "silent_probes=0;1;;0",
        "lag=0.25s;;;0",
        "messages=12345678c;;;0",
        "rows=14c;;;0",
        "duplicates=0c;;;0",
    ]


PROBE_SILENCE = Silence("probe", "ce01 CE org.example.Ping", NOW, 450)
SILENT = {"silent": {"class": 0, "site": 0, "probe": 1}, "silences": (PROBE_SILENCE,)}


@pytest.mark.parametrize(
    ("kind", "code"), [("class", 2), ("site", 1), ("probe", 1)], ids=["class", "site", "probe"]
)
def test_the_plugin_names_what_is_silent(
    home: Home, capsys: pytest.CaptureFixture[str], kind: str, code: int
) -> None:
    silences = tuple(Silence(kind, f"thing-{number}", NOW, 450) for number in range(5))
    home.says(silent={"class": 0, "site": 0, "probe": 0, kind: 12}, silences=silences)

    assert home.check("--warning-dead-letters", "9") == code
    line = capsys.readouterr().out
    assert "thing-0, thing-1, thing-2, …" in line and "12 " in line


def test_silent_probes_can_be_tolerated(home: Home) -> None:
    home.says(**SILENT)
    quiet = ("--warning-dead-letters", "9")

    assert home.check(*quiet) == 1
    assert home.check(*quiet, "--warning-silent-probes", "2") == 0
    assert home.check(*quiet, "--critical-silent-probes", "1") == 2


def test_status_lists_what_is_silent(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    now = datetime.now(UTC)
    home.says(**SILENT, coverage=Coverage(now))
    assert home.status() == 0
    text = capsys.readouterr().out
    assert "0 classes, 0 sites, 1 probe\n" in text
    assert "ce01 CE org.example.Ping" in text and "450 s" in text

    home.says(**SILENT, coverage=Coverage(now - timedelta(hours=1)))
    home.status()
    assert "not judged since" in capsys.readouterr().out

    home.status("--json")
    document = json.loads(capsys.readouterr().out)
    assert document["silences"][0]["name"] == PROBE_SILENCE.name
    assert document["silent"]["probe"] == 1


DAY = timedelta(days=1)


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
    home: Home, capsys: pytest.CaptureFixture[str], life: timedelta, left: timedelta, code: int
) -> None:
    end = datetime.now(UTC).replace(microsecond=0) + left
    good = CertificateLife("ca.pem", end - life, end + 3650 * DAY)
    home.says(certificates=(good, CertificateLife("host.pem", end - life, end)))

    assert home.check("--warning-dead-letters", "9") == code
    line = capsys.readouterr().out
    assert ("host.pem" in line) is bool(code) and "ca.pem" not in line
    [days] = re.findall(r"certificate_days=([-\d.]+);14:;3:", line)
    assert float(days) == pytest.approx(left / DAY, abs=0.01)


def test_many_new_dead_letters_are_an_alarm_while_they_are_new(home: Home) -> None:
    home.says(dead_letters_last_hour=100, open_dead_letters={})
    assert home.check() == 1

    home.says(dead_letters_last_hour=1000, open_dead_letters={})
    assert home.check() == 2

    home.says(dead_letters_last_hour=0, dead_letters={"bad-status": 10**6}, open_dead_letters={})
    assert home.check() == 0


def test_the_levels_of_the_plugin_are_configurable(home: Home) -> None:
    home.says(spool_elements=998)

    assert home.check("--warning-dead-letters", "2", "--warning-backlog", "1001") == 0
    assert home.check("--warning-dead-letters", "2", "--warning-backlog", "1000") == 1
    assert home.check("--critical-backlog", "1000") == 2


@pytest.mark.parametrize("break_it", [lambda home: None, lambda home: home.config.write_text("[")])
def test_the_plugin_reports_unknown_without_a_readable_state(
    home: Home, capsys: pytest.CaptureFixture[str], break_it: Callable[[Home], object]
) -> None:
    break_it(home)

    assert home.check() == 3
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("SAM CONSUMER UNKNOWN - ")


def test_a_usage_error_of_the_plugin_is_unknown(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        home.check("--warning-age", "soon")

    assert ended.value.code == 3
    assert capsys.readouterr().out.startswith("SAM CONSUMER UNKNOWN - ")


def test_the_plugin_prints_one_document_on_demand(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.says()

    home.check("--json")

    output = json.loads(capsys.readouterr().out)
    assert (output["code"], output["state"], output["backlog"]) == (1, "WARNING", 2)


def test_line_ends_in_the_state_do_not_add_lines_to_the_plugin_output(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.says(brokers=(replace(AWAY, missing=("evil | broker\nCRITICAL",)),))

    home.check()

    (line,) = capsys.readouterr().out.splitlines()
    assert line.count("|") == 1
