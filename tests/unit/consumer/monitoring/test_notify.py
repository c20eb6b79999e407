"""The notifications for systemd, and the state file, of a running daemon."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.monitoring.observer import Observer
from sam_pipeline.consumer.monitoring.reporter import Reporter
from sam_pipeline.consumer.process.signals import StopRequest
from sam_pipeline.schema.program.systemd import Notifier
from tests.services.systemd import Systemd


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    with Systemd(str(tmp_path / "notify")) as systemd:
        yield systemd


@pytest.fixture
def notifier(systemd: Systemd) -> Iterator[Notifier]:
    notifier = Notifier(systemd.address)
    yield notifier
    notifier.close()


class Daemon:
    """A daemon without a main loop, whose steps the test runs."""

    def __init__(self, directory: Path, systemd: Systemd, notifier: Notifier) -> None:
        self.state, self.request = State(), StopRequest()
        self.directory, self.systemd = directory, systemd
        observer = Observer("site-a", self.state, Inbox(10), [], {})
        self.reporter = Reporter(observer, self.request, directory, notifier)

    def tick(self) -> list[str]:
        """Run one tick of the reporter; the notifications it sends."""
        self.reporter.tick()
        return self.systemd.heard()


@pytest.fixture
def daemon(tmp_path: Path, systemd: Systemd, notifier: Notifier) -> Daemon:
    return Daemon(tmp_path, systemd, notifier)


def test_a_status_is_one_line_and_does_not_block_when_systemd_does_not_read(
    systemd: Systemd, notifier: Notifier
) -> None:
    notifier.send("STATUS=waiting\nREADY=1\nMAINPID=1\x1b[2J")
    assert systemd.heard() == [r"STATUS=waiting READY=1 MAINPID=1\x1b[2J"]

    for _ in range(10_000):  # more than its socket holds
        notifier.send("WATCHDOG=1")


def test_the_daemon_is_ready_once_it_knows_whether_the_database_is_reachable(
    daemon: Daemon,
) -> None:
    assert daemon.tick() == []
    daemon.state.cannot_commit("db.example.org: connection refused")
    (ready,) = daemon.tick()

    assert ready.startswith("READY=1\nSTATUS=waiting: unable to commit since ")
    assert "db.example.org: connection refused" in ready


def test_only_turns_of_the_main_loop_notify_the_watchdog(daemon: Daemon) -> None:
    daemon.state.turned()
    assert "WATCHDOG=1" in daemon.tick()

    assert [*daemon.tick(), *daemon.tick()] == []
    daemon.state.turned()
    assert daemon.tick() == ["WATCHDOG=1"]


def test_a_state_file_that_cannot_be_written_is_reported_once_and_stops_nothing(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    (daemon.directory / f".consume-site-a.state.json.{os.getpid()}.new").mkdir()

    daemon.tick()
    daemon.tick()

    assert caplog.text.count("sam-consume status` will be out of date") == 1
