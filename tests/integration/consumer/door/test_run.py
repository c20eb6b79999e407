"""`sam-consume run` with a door: drains, status, and the extra that it needs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

from sam_pipeline.consumer.core.drain import SILENCE_S
from sam_pipeline.schema.program.command import CONFIG, OK
from tests.services.process import port_is_open
from tests.support.consumer.bad_requests import GOOD, PATH, post
from tests.support.consumer.daemon import site_of
from tests.support.consumer.door import new_door
from tests.support.consumer.door_site import door_site
from tests.support.consumer.site import Site, eventually
from tests.support.raw_http import request

WITHOUT_AIOHTTP = """
import sys
sys.modules["aiohttp"] = None
from sam_pipeline.consumer.cli import main
sys.exit(main(sys.argv[1:]))
"""


def without_aiohttp(site: Site, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_AIOHTTP, "--config", str(site.config), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_drain_takes_messages_until_none_has_arrived_for_a_while(tmp_path: Path) -> None:
    door = new_door()
    site = site_of(tmp_path, [door.listen_url], name=door.name)
    answers: list[int] = []

    def send() -> None:
        eventually(lambda: port_is_open(door.port))
        with door.client() as client:
            answers.extend(client.post(PATH, GOOD).status for _ in range(2))

    sender = threading.Thread(target=send)
    sender.start()
    done = site.run("run", "--drain", "--json")
    sender.join(SILENCE_S)

    assert done.returncode == OK
    tally = json.loads(done.stdout)
    assert (answers, tally["rows"], tally["duplicates"]) == ([200, 200], 1, 1)


def test_status_counts_requests_and_connections(tmp_path: Path) -> None:
    with door_site(tmp_path) as site, site.connect() as connection:
        connection.send(post() + request("GET", "/nothing") + request("GET", "/healthz"))
        for _ in range(3):
            connection.answer()

        def status() -> dict[str, object]:
            document: dict[str, object] = json.loads(site.site.run("status", "--json").stdout)
            return document

        eventually(lambda: status()["connections"] == 1)
        assert status()["requests"] == {"200": 2, "404": 1}
        assert "3 requests (200: 2, 404: 1), 1 connection\n" in site.site.run("status").stdout


def test_a_door_without_its_library_is_one_clear_line(tmp_path: Path) -> None:
    door = new_door()
    site = site_of(tmp_path, [door.listen_url], name=door.name)

    for arguments in (["run"], ["run", "--to", f"spool://{tmp_path}/out"]):
        done = without_aiohttp(site, *arguments)

        assert done.returncode == CONFIG
        (line,) = done.stderr.splitlines()
        assert "aiohttp is not installed" in line
        assert "[door]" in line
    assert "aiohttp is not installed" in without_aiohttp(site, "check").stderr


def test_without_a_door_the_library_is_not_needed(tmp_path: Path) -> None:
    site = site_of(tmp_path, [f"spool://{tmp_path}/in"])

    done = without_aiohttp(site, "run", "--drain")

    assert done.returncode == OK, done.stderr
