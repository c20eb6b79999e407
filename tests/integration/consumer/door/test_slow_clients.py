"""Clients that are very many, or send very much, cost a door little."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
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
