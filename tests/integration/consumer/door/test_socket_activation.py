"""The port is opened by systemd, and passed to the daemon with the first connection."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

from sam_pipeline.schema.program.command import CONFIG
from tests.services import missing
from tests.services.process import HOST, free_ports
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.site import Site, eventually, make_site

WAIT_S = 60.0


@contextmanager
def activated(site: Site, port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that listens as systemd does, and becomes the daemon at the first connection."""
    program = shutil.which("systemd-socket-activate")
    if program is None:
        missing("systemd-socket-activate", "apt-get install systemd")
    with log.open("wb") as target:
        command = [program, "-l", f"{HOST}:{port}", *site.command("run")]
        process = subprocess.Popen(command, stderr=target)
    try:
        eventually(lambda: "Listening on" in log.read_text())
        yield process
    finally:
        process.kill()
        process.wait(WAIT_S)


def post(port: int, metric: str) -> int:
    with closing(HTTPConnection(HOST, port, timeout=WAIT_S)) as connection:
        body = metric_message(metric_result(metricName=metric)).body
        connection.request("POST", "/v1/messages/metricOutput", body)
        return connection.getresponse().status


def test_the_first_sender_starts_the_daemon_and_is_answered(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    log = tmp_path / "log"
    site = make_site(
        tmp_path, f"sqlite:///{tmp_path / 'sam.db'}", [f"listen+http://0.0.0.0:{port}"]
    )
    site.config.write_text(
        f"{site.config.read_text()}[consumer.door]\nrequire_identity = false\ninsecure = true\n"
    )
    with activated(site, port, log) as process:
        assert post(port, "first") == 200
        process.send_signal(signal.SIGHUP)
        eventually(lambda: log.read_text().count("starting with") == 2)
        assert post(port, "after a reload") == 200
        process.send_signal(signal.SIGTERM)

        assert process.wait(WAIT_S) == 0
    assert site.rows() == 2


def test_a_port_that_no_url_names_is_an_error(tmp_path: Path) -> None:
    port, other = free_ports(2)
    log = tmp_path / "log"
    site = make_site(
        tmp_path, f"sqlite:///{tmp_path / 'sam.db'}", [f"listen+http://{HOST}:{other}"]
    )
    sender = closing(HTTPConnection(HOST, port, timeout=WAIT_S))
    with activated(site, port, log) as process, sender as connection:
        connection.connect()

        assert process.wait(WAIT_S) == CONFIG
    assert f"{HOST}:{port}" in log.read_text().splitlines()[-1]
