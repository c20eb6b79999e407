"""A daemon reports its state correctly, even while it fails."""

from __future__ import annotations

import json
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from sam_pipeline.schema.times import format_time, parse_time
from tests.services.process import free_ports
from tests.services.systemd import Systemd
from tests.support.brokers.tls_files import TlsFiles
from tests.support.commands import Workplace, embedded
from tests.support.consumer.site import Site, results
from tests.support.waiting import eventually

BUG, UNAVAILABLE = 70, 69
WARNING, CRITICAL = 1, 2
TOKEN = "correct-horse"


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    with Systemd(str(tmp_path / "notify")) as systemd:
        yield systemd


@pytest.fixture
def place(tmp_path: Path, systemd: Systemd) -> Workplace:
    """A workplace with a spool and SQLite, under a service manager."""
    return replace(embedded(tmp_path), environment={"NOTIFY_SOCKET": systemd.address})


@pytest.fixture
def site(place: Workplace) -> Site:
    return Site(place.directory / "sam.toml", place.database, place.name, "state/sam")


def configured(directory: Path, settings: str) -> Workplace:
    place = replace(embedded(directory), consumer_settings=settings)
    return place.write_configuration()


def state(place: Workplace) -> dict[str, Any]:
    """The content of the state file; empty until the daemon writes it."""
    with suppress(FileNotFoundError):
        text = (place.directory / "state/sam/consume-acceptance.state.json").read_text()
        return dict(json.loads(text))
    return {}


def notifications(systemd: Systemd, name: str) -> int:
    return sum(message.startswith(name) for message in systemd.all_heard())


def test_a_daemon_reports_start_load_reload_and_stop_to_systemd_and_to_commands(
    place: Workplace, systemd: Systemd, site: Site
) -> None:
    tls, (port,) = TlsFiles(place.directory), free_ports(1)
    host = tls.host()
    token = tls.file("token", f"{TOKEN}\n".encode())
    site.configure(
        f"""
metrics_listen = "0.0.0.0:{port}"
metrics_certificate_file = "{tls.certificate_file(host)}"
metrics_key_file = "{tls.key_file(host)}"
metrics_token_file = "{token}"
"""
    )

    def scraped(token: str) -> str:
        context = ssl.create_default_context(cafile=str(tls.ca_file))
        headers = {"Authorization": f"Bearer {token}"}
        request = Request(f"https://127.0.0.1:{port}/metrics", headers=headers)
        with suppress(URLError), urlopen(request, timeout=30, context=context) as answer:
            return str(answer.read().decode())
        return ""

    assert place.run("sam-consume", "status").code == UNAVAILABLE
    with place.running("sam-consume", "run") as daemon:
        eventually(lambda: notifications(systemd, "WATCHDOG=1") >= 2)
        site.fill(*results(1))
        eventually(lambda: 'rows_total{class="metricOutput"} 1.0' in scraped(TOKEN))
        refused = scraped("x")
        eventually(lambda: state(place).get("rows") == 1)
        status = place.succeed("sam-consume", "status").out
        plugin = place.succeed("check_sam_consumer").out
        daemon.send_signal(signal.SIGHUP)
        eventually(lambda: notifications(systemd, "READY=1\n") == 2)
        eventually(lambda: "running" in place.run("sam-consume", "status").out)
        assert notifications(systemd, "STOPPING=1") == 0
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(60) == 0

    assert refused == ""
    assert TOKEN not in (place.directory / "running.log").read_text()
    assert status.startswith("acceptance: running\n") and "metricOutput     1" in status
    assert plugin.startswith("SAM CONSUMER OK - acceptance")
    messages = [message for message in systemd.all_heard() if message != "WATCHDOG=1"]
    assert messages[0].startswith("READY=1\nSTATUS=running; ")
    assert messages[-1].startswith("STOPPING=1\n")
    assert notifications(systemd, "RELOADING=1\n") == 1
    assert "stopped: ended at" in place.run("sam-consume", "status").out
    assert (state(place)["rows"], state(place)["damaged_elements"]) == (1, 0)


BROKEN = """
import sys, threading, time
from sam_pipeline.consumer.cli import main
from sam_pipeline.consumer.sinks.database import DatabaseSink

def hang(*_):
    time.sleep(3600)

def fail_beside():
    time.sleep(1)
    raise ValueError("of a thread beside")

if {hangs}:
    DatabaseSink.load = hang
else:
    threading.Thread(target=fail_beside, daemon=True).start()
sys.exit(main(["run"]))
"""
"""`sam-consume run` whose main loop hangs, or one of whose threads raises an error."""


@contextmanager
def broken(place: Workplace, hangs: bool) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", BROKEN.format(hangs=hangs)]
    how = {"cwd": place.directory, "env": place.clean_environment()}
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, **how) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def test_a_stuck_main_loop_does_not_ping_the_watchdog(
    place: Workplace, systemd: Systemd, site: Site
) -> None:
    with broken(place, hangs=True):
        eventually(lambda: notifications(systemd, "WATCHDOG=1") >= 2)
        site.fill(*results(1))
        eventually(lambda: state(place).get("held_messages") == 1)
        before = notifications(systemd, "WATCHDOG=1")
        for _ in range(2):  # the thread that writes the state is still alive
            written = state(place)["written_at"]
            eventually(lambda: state(place)["written_at"] > written)  # noqa: B023

        assert notifications(systemd, "WATCHDOG=1") <= before + 1  # from the turn before it hung
        assert state(place)["messages"] == 0


def test_an_exception_in_any_thread_ends_the_daemon(place: Workplace) -> None:
    with broken(place, hangs=False) as daemon:
        assert daemon.wait(60) == BUG

    assert "ended (of a thread beside)" in place.run("sam-consume", "status").out


def test_a_log_on_a_full_disk_does_not_stop_delivery(place: Workplace, site: Site) -> None:
    command = [sys.executable, "-m", "sam_pipeline.consumer", "-v", "run"]
    with (
        open("/dev/full", "w") as stderr,
        subprocess.Popen(
            command, cwd=place.directory, env=place.clean_environment(), stderr=stderr
        ) as daemon,
    ):
        site.fill(*results(1))
        eventually(lambda: state(place).get("rows") == 1)
        dropped = state(place)["log_lines_dropped"]
        daemon.terminate()
        assert daemon.wait(60) == 0
    assert dropped > 0


def test_classes_and_sites_that_stop_are_noticed(tmp_path: Path) -> None:
    silence = '[[consumer.silence]]\n{}\nafter = "3s"\n'
    rules = [silence.format('class = "metricOutput"'), silence.format('site = "*"')]
    place = configured(tmp_path, "\n".join(rules))
    endpoint = {"siteName": "S", "hostName": "ce01.example.org", "serviceFlavour": "CE"}
    endpoint["validFrom"] = "2026-01-01T00:00:00Z"
    place.succeed("sam-publish", "send", "--class", "serviceEndpoint", stdin=json.dumps(endpoint))
    record = {**endpoint, "metricName": "m", "metricStatus": "OK"}
    with place.running("sam-consume", "run"):
        record["timestamp"] = format_time(datetime.now(UTC))
        place.succeed("sam-publish", "send", stdin=json.dumps(record))
        eventually(lambda: state(place).get("silent", {}).get("site") == 1)
        eventually(lambda: state(place)["silent"]["class"] == 1)

        plugin = place.run("check_sam_consumer")

    assert plugin.code == CRITICAL
    assert "metricOutput" in plugin.out and "1 site" in plugin.out


def test_certificates_that_expire_are_reported_by_every_command(tmp_path: Path) -> None:
    tls, now = TlsFiles(tmp_path), datetime.now(UTC)
    soon = tls.client(now - timedelta(days=300), now + timedelta(days=10))
    tls.certificate_file(soon, "soon.pem")
    tls.key_file(soon, name="soon-key.pem")
    files = 'certificate_file = "soon.pem"\nkey_file = "soon-key.pem"\nca_file = "ca.pem"'
    place = configured(tmp_path, files)

    checked = place.succeed("sam-consume", "check")
    with place.running("sam-consume", "run"):
        eventually(lambda: state(place).get("certificates"))
        shown = place.succeed("sam-consume", "status").out
        plugin = place.run("check_sam_consumer")
        tls.certificate_file(tls.expired_host(), "soon.pem")
    expired = place.run("sam-consume", "check")

    assert re.search(r"soon\.pem +\S+ +10", checked.out)
    assert re.search(r"soon\.pem: 10 days left", shown)
    assert (plugin.code, "soon.pem expires" in plugin.out) == (WARNING, True), str(plugin)
    assert (expired.code, "expired" in expired.err) == (78, True)


def test_one_probe_of_a_thousand_that_stops_is_noticed_within_two_intervals_and_named(
    tmp_path: Path,
) -> None:
    interval, probes, stopped = timedelta(seconds=6), range(1000), 7
    place = embedded(tmp_path)

    def report(numbers: list[int], moment: datetime) -> None:
        record = {"serviceFlavour": "CE", "metricName": "org.example.Ping", "metricStatus": "OK"}
        record["timestamp"] = format_time(moment)
        records = [{"hostName": f"ce{number:04}.example.org", **record} for number in numbers]
        place.succeed("sam-publish", "send", stdin=json.dumps(records))

    def silent() -> int:
        return int(state(place)["silent"]["probe"])

    with place.running("sam-consume", "run"):
        eventually(lambda: state(place).get("coverage") is not None)
        began = datetime.now(UTC).replace(microsecond=0)
        for age in (4, 3, 2, 1, 0):
            report([*probes], began - age * interval)
        next_at = began + interval
        while not silent() and datetime.now(UTC) < began + 10 * interval:
            if datetime.now(UTC) >= next_at:
                report([number for number in probes if number != stopped], next_at)
                next_at += interval
            assert silent() <= 1
            time.sleep(0.2)
        [silence] = state(place)["silences"]
        plugin = place.run("check_sam_consumer")
        report([*probes], datetime.now(UTC))
        eventually(lambda: silent() == 0)
        assert place.run("check_sam_consumer").code == 0

    assert f"ce{stopped:04}.example.org CE org.example.Ping" in silence["name"]
    assert (plugin.code, silence["name"] in plugin.out) == (WARNING, True), str(plugin)
    # The time after which the daemon noticed it, by its own account; a busy test looks later.
    assert parse_time(silence["last"]) == began
    assert interval.total_seconds() < silence["limit_s"] < 2 * interval.total_seconds()
