"""A daemon reports its state truthfully, whatever becomes of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.services.postgres import PostgresServer, fresh_database
from tests.services.process import free_ports, wait_until
from tests.services.systemd import Systemd
from tests.support.commands import Answer, Workplace, embedded
from tests.support.reports.stored import query

SOON_S = 60.0
BUG = 70
UNAVAILABLE = 69
CONFIG = 78
RESULT = ["--metric", "org.example.Ping", "--status", "OK", "--flavour", "CE"]


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    with Systemd(str(tmp_path / "notify")) as systemd:
        yield systemd


@pytest.fixture
def place(tmp_path: Path, systemd: Systemd) -> Workplace:
    """Spool and SQLite, under a service manager."""
    return replace(embedded(tmp_path), environment={"NOTIFY_SOCKET": systemd.address})


def state_of(place: Workplace) -> str:
    return str(place.run("sam-consume", "status", "--json").json["state"])


def publish(place: Workplace, host: str = "ce01.example.org") -> None:
    place.succeed("sam-publish", "result", *RESULT, "--host", host)


def rows(place: Workplace) -> int:
    return int(query(place.database, "SELECT count(*) AS n FROM metricOutput")[0]["n"])


def settings(place: Workplace, line: str) -> None:
    file = place.directory / "sam.toml"
    file.write_text(file.read_text().replace("[consumer]\n", f"[consumer]\n{line}\n"))


@contextmanager
def broken(place: Workplace, how: str) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon with one thing broken."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.consumer.stuck_daemon", how],
        cwd=place.directory,
        env={**place.clean_environment(), "PYTHONPATH": str(Path(__file__).parents[3])},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_status_distinguishes_a_running_daemon_from_a_killed_one(place: Workplace) -> None:
    assert place.run("sam-consume", "status").code == UNAVAILABLE
    with place.running("sam-consume", "run") as daemon:
        publish(place)
        wait_until(lambda: rows(place) == 1, SOON_S)
        wait_until(lambda: written_state(place).get("rows") == 1, SOON_S)

        status = place.succeed("sam-consume", "status")
        assert status.out.startswith("acceptance: running\n")
        assert "metricOutput     1" in status.out
        assert place.succeed("check_sam_consumer").out.startswith("SAM CONSUMER OK - acceptance")

        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
        gone = place.run("sam-consume", "status")

    assert (gone.code, "is gone, last heard of at" in gone.out) == (UNAVAILABLE, True)
    assert place.run("check_sam_consumer").code == 2


def written_state(place: Workplace) -> dict[str, Any]:
    """The document of the state file; empty before it is written."""
    try:
        text = (place.directory / "state/sam/consume-acceptance.state.json").read_text()
    except FileNotFoundError:
        return {}
    document = json.loads(text)
    assert isinstance(document, dict)
    return document


def test_systemd_is_notified_of_start_watchdog_and_stop(place: Workplace, systemd: Systemd) -> None:
    with place.running("sam-consume", "run") as daemon:
        wait_until(lambda: pings(systemd) >= 3, SOON_S)
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(SOON_S) == 0

    heard = [message for message in systemd.all_heard() if message != "WATCHDOG=1"]
    assert heard[0].startswith("READY=1\nSTATUS=running; ")
    assert heard[-1].startswith("STOPPING=1\n")
    assert "stopped: ended at" in place.run("sam-consume", "status").out


def test_a_reload_is_not_reported_as_a_stop(place: Workplace, systemd: Systemd) -> None:
    with place.running("sam-consume", "run") as daemon:
        wait_until(lambda: notifications_of(systemd, "READY=1") == 1, SOON_S)
        daemon.send_signal(signal.SIGHUP)
        wait_until(lambda: notifications_of(systemd, "READY=1") == 2, SOON_S)

        assert notifications_of(systemd, "RELOADING=1") == 1
        assert notifications_of(systemd, "STOPPING=1") == 0
        wait_until(lambda: state_of(place) == "running", SOON_S)


def pings(systemd: Systemd) -> int:
    return systemd.all_heard().count("WATCHDOG=1")


def notifications_of(systemd: Systemd, word: str) -> int:
    return sum(message.startswith(f"{word}\n") for message in systemd.all_heard())


def test_a_stuck_main_loop_does_not_ping_the_watchdog(place: Workplace, systemd: Systemd) -> None:
    with broken(place, "hanging"):
        wait_until(lambda: pings(systemd) >= 2, SOON_S)
        publish(place)
        wait_until(lambda: written_state(place).get("held_messages") == 1, SOON_S)
        written = written_state(place)["written_at"]
        before = pings(systemd)
        wait_until(
            lambda: written_state(place)["written_at"] > written, SOON_S
        )  # that thread lives
        written = written_state(place)["written_at"]
        wait_until(lambda: written_state(place)["written_at"] > written, SOON_S)

        assert pings(systemd) <= before + 1  # for the turn before it hung
        assert written_state(place)["messages"] == 0


def test_an_exception_in_any_thread_ends_the_daemon(place: Workplace) -> None:
    with broken(place, "failing") as daemon:
        assert daemon.wait(SOON_S) == BUG

    assert "ended (of a thread beside)" in place.run("sam-consume", "status").out


def test_a_full_log_does_not_stop_delivery_and_dropped_lines_are_counted(place: Workplace) -> None:
    command = [sys.executable, "-m", "sam_pipeline.consumer", "-v", "run"]
    with open("/dev/full", "wb") as full:
        daemon = subprocess.Popen(
            command, cwd=place.directory, env=place.clean_environment(), stderr=full
        )
    try:
        publish(place)
        wait_until(lambda: rows(place) == 1, SOON_S)
        wait_until(lambda: written_state(place).get("rows") == 1, SOON_S)

        assert written_state(place)["log_lines_dropped"] > 0
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(SOON_S) == 0
    finally:
        daemon.kill()
        daemon.wait()


def test_a_closed_log_pipe_does_not_stop_delivery(place: Workplace) -> None:
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "sam_pipeline.consumer", "run"]
    daemon = subprocess.Popen(
        command, cwd=place.directory, env=place.clean_environment(), stderr=writer
    )
    os.close(reader)
    os.close(writer)
    try:
        publish(place)
        wait_until(lambda: rows(place) == 1, SOON_S)

        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(SOON_S) == 0
    finally:
        daemon.kill()
        daemon.wait()


def test_the_metrics_port_reports_loaded_rows_and_health(place: Workplace) -> None:
    (port,) = free_ports(1)
    settings(place, f"metrics_port = {port}")
    with place.running("sam-consume", "run"):
        wait_until(lambda: get(port, "/readyz")[0] == 200, SOON_S)
        publish(place)
        name = "sam_consume_rows_total"
        wait_until(
            lambda: f'{name}{{class="metricOutput"}} 1.0' in get(port, "/metrics")[1], SOON_S
        )

        assert get(port, "/healthz") == (200, "running\n")


def test_a_metrics_port_in_use_is_reported_at_the_start(place: Workplace) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        settings(place, f"metrics_port = {other.getsockname()[1]}")

        answer = place.run("sam-consume", "run")

    assert answer.code == CONFIG, str(answer)
    assert "another program" in answer.err


def get(port: int, path: str) -> tuple[int, str]:
    """Status and text; (0, "") where nobody listens yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=SOON_S) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_a_daemon_that_cannot_commit_is_not_healthy(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    place = Workplace(
        tmp_path, broker=f"spool://{tmp_path / 'spool'}", database=fresh_database(postgres)
    ).write_configuration()
    place.succeed("sam-db", "upgrade")
    (port,) = free_ports(1)
    settings(place, f"metrics_port = {port}")
    try:
        with place.running("sam-consume", "run"):
            wait_until(lambda: get(port, "/readyz")[0] == 200, SOON_S)
            postgres.kill()
            publish(place)
            wait_until(lambda: get(port, "/readyz")[0] == 503, SOON_S)
            wait_until(lambda: written_state(place)["waiting_since"] is not None, SOON_S)

            status = place.run("sam-consume", "status")
            assert status.code == UNAVAILABLE
            assert "waiting: nothing can be stored" in status.out
            assert written_state(place)["held_messages"] == 1
            assert get(port, "/healthz")[0] == 200
            warned = place.run("check_sam_consumer")
            assert (warned.code, "nothing can be stored" in warned.out) == (1, True), str(warned)
            alarmed = place.run("check_sam_consumer", "--critical-age", "0")
            assert alarmed.code == 2, str(alarmed)

            postgres.restart()
            wait_until(lambda: get(port, "/readyz")[0] == 200, SOON_S)
            wait_until(lambda: written_state(place)["rows"] == 1, SOON_S)
    finally:
        if not postgres.process.running:
            postgres.restart()


def test_examples_in_the_help_of_the_plugin_are_valid_commands(place: Workplace) -> None:
    text = place.succeed("check_sam_consumer", "--help").out
    examples = [line.split() for line in text.splitlines() if line.startswith("  check_sam_")]
    assert examples

    for command in examples:
        answer: Answer = place.run(*command)
        assert "usage" not in answer.out, str(answer)
        assert "arguments" not in answer.out, str(answer)
