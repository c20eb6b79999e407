"""`sam-consume run` with a door: drains, NRDP clients, and clients that are very many or large."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest

from sam_pipeline.consumer.core.loop import SILENCE_S
from sam_pipeline.consumer.sources.door.exchange import FORM
from sam_pipeline.schema.identity.tokens import make_token
from sam_pipeline.schema.program.command import CONFIG, OK
from sam_pipeline.schema.spool.element import serialise
from tests.services.process import port_is_open
from tests.support.builders import metric_result
from tests.support.consumer.bad_requests import GOOD, PATH, bomb, post, wlcg
from tests.support.consumer.daemon import site_of
from tests.support.consumer.door import DoorSite, door_site, new_door
from tests.support.consumer.memory import MIB, peak_mb
from tests.support.consumer.site import Site, results
from tests.support.http_client import LINES, HttpAnswer
from tests.support.raw_http import Field, request
from tests.support.waiting import eventually

WITHOUT_AIOHTTP = """
import sys
sys.modules["aiohttp"] = None
from sam_pipeline.consumer.cli import main
sys.exit(main(sys.argv[1:]))
"""
RESULT = """\
<checkresult type='service'><hostname>ce01.example.org</hostname>\
<servicename>{}</servicename><state>1</state><output>slow|rtt=3s</output></checkresult>"""
BAD = "<checkresult type='host'><hostname>ce01.example.org</hostname><state>9</state></checkresult>"


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
    done = subprocess.run(site.command("run", "--drain", "--json"), stdout=subprocess.PIPE)
    sender.join(SILENCE_S)

    tally = json.loads(done.stdout)
    assert (done.returncode, answers) == (OK, [200, 200])
    assert (tally["rows"], tally["duplicates"]) == (1, 1)


def test_a_door_without_its_library_is_one_clear_line(tmp_path: Path) -> None:
    site = site_of(tmp_path, [new_door().listen_url], name="door")

    for arguments in (["run"], ["check"]):
        done = without_aiohttp(site, *arguments)
        assert done.returncode == CONFIG
        lines = [line for line in done.stderr.splitlines() if "aiohttp" in line]
        assert len(lines) == 1 and "[door]" in lines[0]

    spool = site_of(tmp_path, [f"spool://{tmp_path}/in"])
    assert without_aiohttp(spool, "run", "--drain").returncode == OK


def test_nrdp_clients_are_answered_when_their_results_are_stored(tmp_path: Path) -> None:
    token = make_token(tmp_path / "tokens", "nagios1")
    with door_site(tmp_path, tokens_file="tokens", require_identity=True) as door:

        def submit(path: str, **fields: str) -> HttpAnswer:
            form = {"token": token, "cmd": "submitcheck", **fields}
            with door.door.client() as client:
                return client.post(path, urlencode(form).encode(), FORM)

        many = [RESULT.format(f"nrdp.many{number}") for number in range(250)]
        xml = f"<checkresults>{''.join(many)}{BAD}</checkresults>"
        loaded = submit("/nrdp/CE/", XMLDATA=xml)
        forged = [submit("/nrdp/", XMLDATA=xml, token=token) for token in ("", "secret")]
        query = (
            "SELECT metricStatus || ' ' || serviceFlavour || ' ' || performanceData || ' ' ||"
            " publisher FROM metricOutput WHERE metricName = 'nrdp.many7'"
        )

        assert loaded.status == 200
        assert b"251 checks processed; dead letters: bad-status" in loaded.body
        assert (door.rows("nrdp.%"), door.letters()) == (250, 1)
        assert door.site.column(query) == ["WARNING CE rtt=3s token:nagios1"]
        assert [answer.status for answer in forged] == [401, 401]

        # The client in Python sends everything in the URL; others declare an encoding.
        one = RESULT.format("got").replace("<output>", "<output>20°C ")
        latin = f'<?xml version="1.0" encoding="iso-8859-1"?><checkresults>{one}</checkresults>'
        fields = {"token": token, "cmd": "submitcheck", "XMLDATA": latin.encode("latin-1")}
        with door.door.client() as client:
            got = client.get(f"/nrdp/CE?{urlencode(fields)}")
        assert got.status == 200
        assert "20°C" in door.site.scalar(
            "SELECT summaryData FROM metricOutput WHERE metricName = 'got'"
        )


WITHIN_S = 60.0
"""Within this time good requests are answered, also on a busy machine."""

IDLE = 1200
MAX_CONNECTIONS = IDLE + 20
MAX_MB = 150
USUAL_FILES = 1024
"""The usual soft limit on open files."""


def test_more_idle_connections_than_files_may_usually_be_open_cost_little(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with usual_limit_on_files():
            door = stack.enter_context(door_site(tmp_path, max_connections=MAX_CONNECTIONS))
        before = threads(door)
        for _ in range(IDLE):
            connection = stack.enter_context(door.connect(WITHIN_S))
            connection.send(post())  # from then on it is not that of a stranger
            assert connection.answer().status == 200

        ask_good(door)
        assert threads(door) <= before + 1
        assert peak_mb(door.daemon.process.pid) < MAX_MB

        more = [
            stack.enter_context(door.connect(WITHIN_S)) for _ in range(MAX_CONNECTIONS - IDLE + 1)
        ]
        refused = more[0].answer()  # the last one has its place
        assert (refused.status, refused.headers["retry-after"].isdigit()) == (503, True)
        for connection in more:
            connection.socket.close()
        eventually(lambda: door.get("/healthz").status == 200)
        ask_good(door)


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ((("Content-Encoding", "gzip"),), bomb(100 * MIB)),
        ((), b"\n" * 1_000_000),
        ((), b"".join(serialise(message) + b"\n" for message in results(5_000))),
    ],
    ids=["a gzip bomb", "empty lines", "many messages"],
)
def test_a_large_request_does_not_shut_out_others(
    tmp_path: Path, fields: tuple[Field, ...], body: bytes
) -> None:
    large = request("POST", "/v1/messages", *fields, ("Content-Type", LINES), body=body)

    with door_site(tmp_path) as door, door.connect(WITHIN_S) as connection:
        with ThreadPoolExecutor(1) as sender:
            sending = sender.submit(lambda: (connection.send(large), connection.answer())[1])
            slowest_s = 0.0
            while not sending.done():
                began = time.monotonic()
                ask_good(door)
                slowest_s = max(slowest_s, time.monotonic() - began)

        assert sending.result().status < 500
        assert slowest_s < WITHIN_S / 4
        assert peak_mb(door.daemon.process.pid) < MAX_MB


def ask_good(door: DoorSite) -> None:
    """A good request is answered, and becomes a row."""
    record = metric_result(metricName=f"org.sam.Good{time.monotonic_ns()}")
    with door.connect(WITHIN_S) as connection:
        connection.send(post(body=wlcg(record)))
        answer = connection.answer()
    assert (answer.status, answer.document["rows"]) == (200, 1)


def threads(door: DoorSite) -> int:
    return len(list(Path(f"/proc/{door.daemon.process.pid}/task").iterdir()))


@contextmanager
def usual_limit_on_files() -> Iterator[None]:
    """What is started inside the block may open few files, unless it raises its limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (USUAL_FILES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * IDLE), hard))
