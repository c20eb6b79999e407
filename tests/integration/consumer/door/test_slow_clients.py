"""Clients that are slow, silent or very many cost a door little, and good ones nothing."""

from __future__ import annotations

import resource
import select
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from sam_pipeline.schema.spool.element import serialise
from tests.support.builders import metric_result
from tests.support.consumer.bad_requests import bomb, post, wlcg
from tests.support.consumer.door_site import DoorSite, door_site
from tests.support.consumer.memory import MIB, peak_mb
from tests.support.consumer.site import results
from tests.support.http_client import LINES
from tests.support.raw_http import Field, request
from tests.support.waiting import eventually

LIMIT_S = 10.0
"""For the head of a request, for a body that does not arrive, and for an answer nobody reads."""
DRIP_S = 0.2
WITHIN_S = 60.0
"""Within this time good requests are answered, and slow ones are ended."""

IDLE = 1200
MAX_CONNECTIONS = IDLE + 20
MAX_MB = 150
USUAL_FILES = 1024
"""The usual soft limit on open files."""

A_CHUNK = ("Transfer-Encoding", "chunked")
A_LARGE_BODY = ("Content-Length", str(MIB))


SLOW: Mapping[str, tuple[bytes, bytes]] = {
    "a silent head": (post()[:40], b""),
    "a dripping head": (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: ", b"y"),
    "a silent body": (post(A_LARGE_BODY, body=None) + b"hostName", b""),
    "a body that stops": (post(A_LARGE_BODY, body=None) + b"x" * 100_000, b""),
    "a dripping body": (post(A_LARGE_BODY, body=None), b"x" * 20),
    "dripping chunks": (post(A_CHUNK, body=None), b"1\r\nx\r\n"),
}
"""The bytes at the beginning, and those of every DRIP_S."""


def test_slow_clients_end_in_time_and_good_requests_beside_them_are_stored(tmp_path: Path) -> None:
    with door_site(tmp_path) as door, ExitStack() as stack:
        deaf = stack.enter_context(door.connect(timeout_s=1))
        with suppress(TimeoutError):  # the peer reads no more either
            while True:
                deaf.socket.sendall(request("GET", "/v1/openapi.json") * 100)
        slow = {name: stack.enter_context(door.connect()) for name in SLOW}
        for name, connection in slow.items():
            connection.send(SLOW[name][0])
        began = time.monotonic()
        ended: dict[str, float] = {}
        good = 0
        while len(ended) < len(slow) and time.monotonic() - began < WITHIN_S:
            good += 1
            ask_good(door)
            time.sleep(DRIP_S)
            for name in slow.keys() - ended.keys():
                if select.select([slow[name].socket], [], [], 0)[0]:
                    ended[name] = time.monotonic() - began
                else:
                    slow[name].send(SLOW[name][1])
        statuses = {
            name: [answer.status for answer in connection.answers()]
            for name, connection in slow.items()
        }

        assert statuses == {name: [408] for name in SLOW}
        assert min(ended.values()) > LIMIT_S - 1, ended
        eventually(lambda: connections_of(door) == 0)  # the deaf one was closed, too
        assert door.rows() == good
        assert peak_mb(door.daemon.process.pid) < MAX_MB


def test_more_idle_connections_than_files_may_usually_be_open_cost_little(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with usual_limit_on_files():
            door = stack.enter_context(door_site(tmp_path, max_connections=MAX_CONNECTIONS))
        before = threads(door)
        idle = [stack.enter_context(door.connect(WITHIN_S)) for _ in range(IDLE)]
        for connection in idle[: IDLE // 2]:
            connection.send(request("GET", "/healthz"))
        assert {connection.answer().status for connection in idle[: IDLE // 2]} == {200}

        ask_good(door)
        assert threads(door) <= before + 1
        assert peak_mb(door.daemon.process.pid) < MAX_MB

        more = [
            stack.enter_context(door.connect(WITHIN_S)) for _ in range(MAX_CONNECTIONS - IDLE + 1)
        ]
        refused = more[-1].answer()
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
        ((), b"".join(serialise(message) + b"\n" for message in results(12_000))),
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


def connections_of(door: DoorSite) -> int:
    """The connections that the door's machine has open at its port, other than listening."""
    listening = f"{socket.htonl(0x7F000001):08X}:{door.door.port:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    established = "01"
    return sum(line.split()[1] == listening and line.split()[3] == established for line in lines)


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
