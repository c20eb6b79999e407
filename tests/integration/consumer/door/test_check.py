"""`sam-consume check` asks what listens at the addresses of the doors."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import NamedTuple

from sam_pipeline.consumer.commands.door_check import ALIVE, FREE, OUTDATED
from sam_pipeline.schema.program.command import CONFIG, OK
from tests.services.process import HOST, free_ports, port_is_open
from tests.support.brokers.tls_files import TlsFiles
from tests.support.consumer.daemon import running
from tests.support.consumer.site import Site, eventually, make_site

DOOR = """
[consumer.door]
certificate_file = "host.pem"
key_file = "host-key.pem"
"""


class Checked(NamedTuple):
    code: int
    problems: list[str]
    notes: list[str]
    proven: list[str]


def check(site: Site) -> Checked:
    done = site.run("check", "--json")
    document = json.loads(done.stdout)
    proven = [trip["proven"] for trip in document["brokers"]]
    return Checked(done.returncode, document["problems"], document["notes"], proven)


def renew(files: TlsFiles) -> None:
    host = files.host()
    files.certificate_file(host, "host.pem")
    files.key_file(host, name="host-key.pem")


@contextmanager
def another_program(port: int) -> Iterator[None]:
    with HTTPServer((HOST, port), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield
        server.shutdown()
        thread.join()


def test_the_running_daemon_is_recognised_and_so_is_its_old_certificate(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    renew(files)
    (port,) = free_ports(1)
    url = f"listen+https://{HOST}:{port}"
    site = make_site(tmp_path, f"sqlite:///{tmp_path / 'sam.db'}", [url])
    site.config.write_text(site.config.read_text() + DOOR)
    assert check(site).proven == [FREE]

    with running(site) as daemon:
        eventually(lambda: port_is_open(port) or not daemon.alive)
        shown = site.run("check", "--connect")
        assert (shown.returncode, ALIVE in shown.stdout) == (OK, True)
        renew(files)
        outdated = check(site)

    assert (outdated.code, outdated.proven) == (OK, [OUTDATED])
    assert [note for note in outdated.notes if url in note and "reload" in note]


def test_a_port_of_another_program_is_a_problem(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url = f"listen+http://{HOST}:{port}"
    site = make_site(tmp_path, f"sqlite:///{tmp_path / 'sam.db'}", [url])
    with another_program(port):
        checked = check(site)

    assert checked.code == CONFIG
    assert [problem for problem in checked.problems if url in problem and "in use" in problem]
