"""A daemon reports its state correctly, even while it fails."""

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
RESULT = ["--metric", "org.example.Ping", "--status", "OK", "--flavour", "CE"]


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    with Systemd(str(tmp_path / "notify")) as systemd:
        yield systemd


@pytest.fixture
def workplace(tmp_path: Path, systemd: Systemd) -> Workplace:
    """A workplace with a spool and SQLite, under a service manager."""
    return replace(embedded(tmp_path), environment={"NOTIFY_SOCKET": systemd.address})


def state_of(workplace: Workplace) -> str:
    return str(workplace.run("sam-consume", "status", "--json").json["state"])


def publish(workplace: Workplace, host: str = "ce01.example.org") -> None:
    workplace.succeed("sam-publish", "result", *RESULT, "--host", host)


def rows(workplace: Workplace) -> int:
    return int(query(workplace.database, "SELECT count(*) AS n FROM metricOutput")[0]["n"])


def settings(workplace: Workplace, line: str) -> None:
    file = workplace.directory / "sam.toml"
    file.write_text(file.read_text().replace("[consumer]\n", f"[consumer]\n{line}\n"))


@contextmanager
def broken(workplace: Workplace, defect: str) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon with one defect."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.consumer.stuck_daemon", defect],
        cwd=workplace.directory,
        env={**workplace.clean_environment(), "PYTHONPATH": str(Path(__file__).parents[3])},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_status_distinguishes_a_running_daemon_from_a_killed_one(workplace: Workplace) -> None:
    assert workplace.run("sam-consume", "status").code == UNAVAILABLE
    with workplace.running("sam-consume", "run") as daemon:
        publish(workplace)
        wait_until(lambda: rows(workplace) == 1, SOON_S)
        wait_until(lambda: written_state(workplace).get("rows") == 1, SOON_S)

        status = workplace.succeed("sam-consume", "status")
        assert status.out.startswith("acceptance: running\n")
        assert "metricOutput     1" in status.out
        assert workplace.succeed("check_sam_consumer").out.startswith(
            "SAM CONSUMER OK - acceptance"
        )

        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
        gone = workplace.run("sam-consume", "status")

    assert (gone.code, "does not exist, last report at" in gone.out) == (UNAVAILABLE, True)
    assert workplace.run("check_sam_consumer").code == 2


def written_state(workplace: Workplace) -> dict[str, Any]:
    """The content of the state file; empty until the daemon writes it."""
    try:
        text = (workplace.directory / "state/sam/consume-acceptance.state.json").read_text()
    except FileNotFoundError:
        return {}
    document = json.loads(text)
    assert isinstance(document, dict)
    return document


def test_systemd_is_notified_of_start_watchdog_and_stop(
    workplace: Workplace, systemd: Systemd
) -> None:
    with workplace.running("sam-consume", "run") as daemon:
        wait_until(lambda: pings(systemd) >= 3, SOON_S)
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(SOON_S) == 0

    messages = [message for message in systemd.all_heard() if message != "WATCHDOG=1"]
    assert messages[0].startswith("READY=1\nSTATUS=running; ")
    assert messages[-1].startswith("STOPPING=1\n")
    assert "stopped: ended at" in workplace.run("sam-consume", "status").out


def test_a_reload_is_not_reported_as_a_stop(workplace: Workplace, systemd: Systemd) -> None:
    with workplace.running("sam-consume", "run") as daemon:
        wait_until(lambda: notifications_of(systemd, "READY=1") == 1, SOON_S)
        daemon.send_signal(signal.SIGHUP)
        wait_until(lambda: notifications_of(systemd, "READY=1") == 2, SOON_S)

        assert notifications_of(systemd, "RELOADING=1") == 1
        assert notifications_of(systemd, "STOPPING=1") == 0
        wait_until(lambda: state_of(workplace) == "running", SOON_S)


def pings(systemd: Systemd) -> int:
    return systemd.all_heard().count("WATCHDOG=1")


def notifications_of(systemd: Systemd, state: str) -> int:
    return sum(message.startswith(f"{state}\n") for message in systemd.all_heard())


def test_a_stuck_main_loop_does_not_ping_the_watchdog(
    workplace: Workplace, systemd: Systemd
) -> None:
    with broken(workplace, "hanging"):
        wait_until(lambda: pings(systemd) >= 2, SOON_S)
        publish(workplace)
        wait_until(lambda: written_state(workplace).get("held_messages") == 1, SOON_S)
        written = written_state(workplace)["written_at"]
        before = pings(systemd)
        # The thread that writes the state is still alive.
        wait_until(lambda: written_state(workplace)["written_at"] > written, SOON_S)
        written = written_state(workplace)["written_at"]
        wait_until(lambda: written_state(workplace)["written_at"] > written, SOON_S)

        assert pings(systemd) <= before + 1  # from the turn before it hung
        assert written_state(workplace)["messages"] == 0


def test_an_exception_in_any_thread_ends_the_daemon(workplace: Workplace) -> None:
    with broken(workplace, "failing") as daemon:
        assert daemon.wait(SOON_S) == BUG

    assert "ended (of a thread beside)" in workplace.run("sam-consume", "status").out


def test_a_full_log_does_not_stop_delivery_and_dropped_lines_are_counted(
    workplace: Workplace,
) -> None:
    command = [sys.executable, "-m", "sam_pipeline.consumer", "-v", "run"]
    with open("/dev/full", "wb") as full:
        daemon = subprocess.Popen(
            command, cwd=workplace.directory, env=workplace.clean_environment(), stderr=full
        )
    try:
        publish(workplace)
        wait_until(lambda: rows(workplace) == 1, SOON_S)
        wait_until(lambda: written_state(workplace).get("rows") == 1, SOON_S)

        assert written_state(workplace)["log_lines_dropped"] > 0
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(SOON_S) == 0
    finally:
        daemon.kill()
        daemon.wait()


def test_a_closed_log_pipe_does_not_stop_delivery(workplace: Workplace) -> None:
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "sam_pipeline.consumer", "run"]
    daemon = subprocess.Popen(
        command, cwd=workplace.directory, env=workplace.clean_environment(), stderr=writer
    )
    os.close(reader)
    os.close(writer)
    try:
        publish(workplace)
        wait_until(lambda: rows(workplace) == 1, SOON_S)

        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(SOON_S) == 0
    finally:
        daemon.kill()
        daemon.wait()


def test_the_metrics_port_reports_loaded_rows_and_health(workplace: Workplace) -> None:
    (port,) = free_ports(1)
    settings(workplace, f'metrics_listen = "127.0.0.1:{port}"')
    with workplace.running("sam-consume", "run"):
        wait_until(lambda: get(port, "/readyz")[0] == 200, SOON_S)
        publish(workplace)
        name = "sam_consume_rows_total"
        wait_until(
            lambda: f'{name}{{class="metricOutput"}} 1.0' in get(port, "/metrics")[1], SOON_S
        )

        assert get(port, "/healthz") == (200, "running\n")


def test_a_daemon_whose_metrics_port_is_in_use_loads_and_says_so(workplace: Workplace) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        settings(workplace, f'metrics_listen = "127.0.0.1:{other.getsockname()[1]}"')
        with workplace.running("sam-consume", "run"):
            publish(workplace)
            wait_until(lambda: rows(workplace) == 1, SOON_S)

    [error] = [
        line
        for line in (workplace.directory / "running.log").read_text().splitlines()
        if " ERROR " in line
    ]
    assert "metrics_listen" in error
    assert "another program" in error


def get(port: int, path: str) -> tuple[int, str]:
    """Status and text of the answer; (0, "") while nothing listens."""
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
    workplace = Workplace(
        tmp_path, broker=f"spool://{tmp_path / 'spool'}", database=fresh_database(postgres)
    ).write_configuration()
    workplace.succeed("sam-db", "upgrade")
    (port,) = free_ports(1)
    settings(workplace, f'metrics_listen = "127.0.0.1:{port}"')
    try:
        with workplace.running("sam-consume", "run"):
            wait_until(lambda: get(port, "/readyz")[0] == 200, SOON_S)
            postgres.kill()
            publish(workplace)
            wait_until(lambda: get(port, "/readyz")[0] == 503, SOON_S)
            wait_until(lambda: written_state(workplace)["waiting_since"] is not None, SOON_S)

            status = workplace.run("sam-consume", "status")
            assert status.code == UNAVAILABLE
            assert "waiting: unable to commit" in status.out
            wait_until(lambda: written_state(workplace)["held_messages"] == 1, SOON_S)
            assert get(port, "/healthz")[0] == 200
            warned = workplace.run("check_sam_consumer")
            assert (warned.code, "unable to commit" in warned.out) == (1, True), str(warned)
            alarmed = workplace.run("check_sam_consumer", "--critical-age", "0")
            assert alarmed.code == 2, str(alarmed)

            postgres.restart()
            wait_until(lambda: get(port, "/readyz")[0] == 200, SOON_S)
            wait_until(lambda: written_state(workplace)["rows"] == 1, SOON_S)
    finally:
        if not postgres.process.running:
            postgres.restart()


def test_examples_in_the_help_of_the_plugin_are_valid_commands(workplace: Workplace) -> None:
    text = workplace.succeed("check_sam_consumer", "--help").out
    examples = [line.split() for line in text.splitlines() if line.startswith("  check_sam_")]
    assert examples

    for command in examples:
        answer: Answer = workplace.run(*command)
        assert "usage" not in answer.out, str(answer)
        assert "arguments" not in answer.out, str(answer)
