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
from tests.services.process import wait_until
from tests.support.builders import metric_result
from tests.support.consumer.bad_requests import bomb, post, wlcg
from tests.support.consumer.door_site import DoorSite, door_site
from tests.support.consumer.memory import MIB, peak_mb
from tests.support.consumer.site import results
from tests.support.http_client import LINES
from tests.support.raw_http import Field, RawConnection, request

LIMIT_S = 10.0
"""For the head of a request, for a body that does not arrive, and for an answer nobody reads."""
SPARE_S = 5.0
DRIP_S = 0.2
WITHIN_S = 60.0
PROMPT_S = 3.0
"""A good request must be answered within this time, not counting that without a free processor."""

IDLE = 2000
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
        send_without_reading(deaf, request("GET", "/v1/openapi.json") * 100)
        slow = {name: stack.enter_context(door.connect()) for name in SLOW}
        for name, connection in slow.items():
            connection.send(SLOW[name][0])
        began = time.monotonic()
        ended: dict[str, float] = {}
        good = 0
        while len(ended) < len(slow) and time.monotonic() - began < LIMIT_S + SPARE_S:
            good += 1
            assert seconds_of_a_good_request(door) < PROMPT_S
            time.sleep(DRIP_S)
            for name in slow.keys() - ended.keys():
                if is_readable(slow[name]):
                    ended[name] = time.monotonic() - began
                else:
                    slow[name].send(SLOW[name][1])
        statuses = {
            name: [answer.status for answer in connection.answers()]
            for name, connection in slow.items()
        }

        assert statuses == {name: [408] for name in SLOW}
        assert min(ended.values()) > LIMIT_S - 1, ended
        wait_until(lambda: connections_of(door) == 0, SPARE_S)  # the deaf one was closed, too
        assert door.rows() == good
        assert peak_mb(door.daemon.process.pid) < MAX_MB


def test_two_thousand_idle_connections_cost_little(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with usual_limit_on_files():
            scene = door_site(tmp_path, max_connections=MAX_CONNECTIONS)
            door = stack.enter_context(scene)
        before = threads(door)
        idle = [stack.enter_context(door.connect()) for _ in range(IDLE)]
        for connection in idle[: IDLE // 2]:
            connection.send(request("GET", "/healthz"))
        assert {connection.answer().status for connection in idle[: IDLE // 2]} == {200}

        assert seconds_of_a_good_request(door) < PROMPT_S
        assert threads(door) <= before + 1
        assert peak_mb(door.daemon.process.pid) < MAX_MB

        more = [stack.enter_context(door.connect()) for _ in range(MAX_CONNECTIONS - IDLE + 1)]
        refused = more[-1].answer()
        assert (refused.status, refused.headers["retry-after"].isdigit()) == (503, True)
        for connection in more:
            connection.socket.close()
        wait_until(lambda: door.get("/healthz").status == 200, SPARE_S)
        assert seconds_of_a_good_request(door) < PROMPT_S


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ((("Content-Encoding", "gzip"),), bomb(100 * MIB)),
        ((), b"\n" * 1_000_000),
        ((), b"".join(serialise(message) + b"\n" for message in results(12_000))),
    ],
    ids=["a gzip bomb", "empty lines", "many messages"],
)
def test_a_large_request_does_not_delay_or_shut_out_others(
    tmp_path: Path, fields: tuple[Field, ...], body: bytes
) -> None:
    large = request("POST", "/v1/messages", *fields, ("Content-Type", LINES), body=body)

    with door_site(tmp_path) as door, door.connect(WITHIN_S) as connection:
        with ThreadPoolExecutor(1) as sender:
            sending = sender.submit(lambda: (connection.send(large), connection.answer())[1])
            while not sending.done():
                assert seconds_of_a_good_request(door) < PROMPT_S

        assert sending.result().status < 500
        assert peak_mb(door.daemon.process.pid) < MAX_MB


def seconds_of_a_good_request(door: DoorSite) -> float:
    """How long it takes, from connecting to its answer, with a processor; it becomes a row."""
    began = time.monotonic() - seconds_without_a_processor(door)
    record = metric_result(metricName=f"org.sam.Good{time.monotonic_ns()}")
    answer = door.ask(post(body=wlcg(record)))
    assert (answer.status, answer.document["rows"]) == (200, 1)
    return time.monotonic() - seconds_without_a_processor(door) - began


def seconds_without_a_processor(door: DoorSite) -> float:
    """How long this thread, or one of the door's, could have run while other processes did."""
    threads = [Path("/proc/thread-self"), *Path(f"/proc/{door.daemon.process.pid}/task").iterdir()]
    waited_ns = [0]
    for thread in threads:
        with suppress(OSError):  # it has just ended
            waited_ns.append(int((thread / "schedstat").read_text().split()[1]))
    return max(waited_ns) / 1e9


def is_readable(connection: RawConnection) -> bool:
    return bool(select.select([connection.socket], [], [], 0)[0])


def send_without_reading(connection: RawConnection, data: bytes) -> None:
    """Send the data again and again, until the peer reads no more either."""
    try:
        while True:
            connection.socket.sendall(data)
    except TimeoutError:
        return


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
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
