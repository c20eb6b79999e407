"""The HTTP door of `sam-consume`, compared with ActiveMQ's servlet and with messages by STOMP.

    python -m tests.benchmarks.door [--part A]... [--quick]

    A  posts of one record from 50 clients that keep their connections
    B  the same from clients that connect for each post, like curl and sam-publish
    C  posts of 100 records, compared with the same messages from a durable subscription
    D  the time until an answer, at an even pace of 500 posts per second
    E  memory with 2,000 connections
    F  `sam-publish send` through the door, compared with STOMP, until every record is a row

Into a private PostgreSQL with durable commits; every answer has to be 200, and every record a row.
Parts A and B also post to the servlet of ActiveMQ 5.18, which keeps the messages in a persistent
queue. The clients of parts A to E run in one process beside the servers: many connections in one
thread, which look only for the end of an answer. The contestants take turns, and the median of the
ratios of each turn counts.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple
from urllib.parse import urlencode

from sam_pipeline.schema.messages.message import Message, new_message, new_message_id
from sam_pipeline.schema.records.text import write_wlcg
from tests.benchmarks.common import (
    Watch,
    arguments,
    check,
    environment,
    print_figure,
    print_load,
    print_ratio,
    print_speed,
    seconds,
)
from tests.benchmarks.road import DESTINATION, Consumer, Road, of, road, single
from tests.services.activemq5 import ActiveMQ5Server, running_activemq5
from tests.services.postgres import as_role
from tests.services.process import HOST, free_ports, port_is_open
from tests.support.waiting import eventually

BROKER = "rabbitmq"
"""On the road by STOMP."""
CLIENTS = 50
RECORDS = 100
IDLE_CONNECTIONS = 2000
PACE = 500
TIMEOUT_S = 300.0

SINGLE_BOUND = 2000
SERVLET_BOUND = 3.0
STOMP_BOUND = 0.5
SEND_BOUND = 0.5
P99_BOUND_S = 0.5
MEMORY_BOUND_MB = 150

_CHUNKED = re.compile(rb"(?i)\r\nTransfer-Encoding: *chunked")
_LENGTH = re.compile(rb"(?i)\r\nContent-Length: *(\d+)")


class Sizes(NamedTuple):
    """Posts of a turn, number of turns, seconds at an even pace."""

    posts: int
    rounds: int
    pace_s: float


FULL = Sizes(posts=30_000, rounds=5, pace_s=20)
QUICK = Sizes(posts=6_000, rounds=2, pace_s=5)


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(__doc__, argv, parts=PARTS, switches=["quick"])
    with road(BROKER) as new_road, door(new_road) as new_door:
        good = [PARTS[part](new_door, QUICK if args.quick else FULL) for part in args.part]
    print_load()
    return 0 if all(good) else 1


@dataclass
class Door:
    """A running consumer with a door."""

    port: int
    consumer: Consumer
    road: Road

    def post(self, messages: Sequence[Message], clients: int, are_kept: bool = True) -> Posted:
        """Post the messages with new ids, and make sure that each was stored."""
        before = new_message_id()
        messages = [
            new_message("metricOutput", m.body.decode(), record_count=m.record_count)
            for m in messages
        ]
        with Connections(self.port, clients, are_kept) as connections:
            posted = connections.post([door_request(message) for message in messages])
        check("answers 200", posted.statuses[200], len(messages))
        check("rows", self.road.commits(before).rows, sum(m.record_count or 0 for m in messages))
        return posted


@contextmanager
def door(road: Road) -> Iterator[Door]:
    """A consumer that only reads its door, until the end of the block."""
    directory = road.directory / "door"
    directory.mkdir()
    (port,) = free_ports(1)
    config = directory / "sam.toml"
    config.write_text(
        f"[database]\nurl = {json.dumps(as_role(road.database, 'loader'))}\n"
        f'[consumer]\nname = "door"\nbrokers = ["listen+http://{HOST}:{port}"]\n'
    )
    config.chmod(0o600)
    consumer = Consumer(directory, [])
    try:
        eventually(lambda: port_is_open(port), timeout_s=60)
        yield Door(port, consumer, road)
    finally:
        consumer.end()


# Parts ----------------------------------------------------------------------------------------


def compare_with_servlet(door: Door, sizes: Sizes, are_kept: bool) -> bool:
    """Parts A and B."""
    posts = sizes.posts if are_kept else sizes.posts // 5
    ours, servlet = [], []
    with running_activemq5() as broker:
        for turn in range(sizes.rounds + 1):
            messages = [single(door.road.results) for _ in range(posts)]
            few = messages if are_kept else messages[: posts // 5]
            posted = door.post(messages, CLIENTS, are_kept)
            requests = [
                servlet_request(broker, message, number % CLIENTS if are_kept else None)
                for number, message in enumerate(few)
            ]
            with Connections(broker.rest_port, CLIENTS, are_kept) as connections:
                by_servlet = connections.post(requests)
            check("answers 200 of the servlet", by_servlet.statuses[200], len(few))
            if turn:
                ours.append(posted.took_s / len(messages))
                servlet.append(by_servlet.took_s / len(few))
    print(f"one record a post, {CLIENTS} {'kept' if are_kept else 'new'} connections at a time")
    least = SINGLE_BOUND if are_kept else None
    print_speed("servlet, posts/s", servlet)
    return all(
        [
            print_figure("door, posts/s", 1 / median(ours), 0, least=least),
            print_ratio("door / servlet", servlet, ours, SERVLET_BOUND),
        ]
    )


def many_records(door: Door, sizes: Sizes) -> bool:
    """Part C."""
    ours, by_stomp = [], []
    count = sizes.posts // 20
    for turn in range(sizes.rounds + 1):
        messages = [of(RECORDS)(door.road.results) for _ in range(count)]
        posted = door.post(messages, CLIENTS)
        after = door.road.publish(count, of(RECORDS))
        check("messages by STOMP", door.road.drain()["messages"], count)
        commits = door.road.commits(after)
        if turn:
            ours.append(posted.took_s / (count * RECORDS))
            rows = commits.rows - commits.commits[0][1]
            by_stomp.append((commits.last - commits.first) / rows)
    print(f"{RECORDS} records a post, {CLIENTS} clients")
    print_speed("door, records/s", ours)
    print_speed("STOMP, records/s", by_stomp)
    return print_ratio("door / STOMP", by_stomp, ours, STOMP_BOUND)


def answer_times(door: Door, sizes: Sizes) -> bool:
    """Part D."""
    requests = [door_request(single(door.road.results)) for _ in range(round(PACE * sizes.pace_s))]
    with Connections(door.port, CLIENTS) as connections:
        connections.post(requests[:PACE], PACE)
        posted = connections.post(requests[PACE:], PACE)
    check("answers 200", posted.statuses[200], len(requests) - PACE)
    print(f"{PACE} posts/s for {sizes.pace_s:g} s, seconds from when each was due to its answer")
    print_figure("answered, median, s", median(posted.answer_s), 3)
    p99_s = quantiles(posted.answer_s, n=100)[-1]
    return print_figure("answered, p99, s", p99_s, 3, most=P99_BOUND_S)


def memory(door: Door, sizes: Sizes) -> bool:
    """Part E."""
    requests = [door_request(single(door.road.results)) for _ in range(sizes.posts)]
    with (
        Watch(consumer=door.consumer.pid) as usage,
        Connections(door.port, IDLE_CONNECTIONS) as connections,
    ):
        posted = connections.post(requests)
        check("answers 200", posted.statuses[200], len(requests))
        door.post([single(door.road.results) for _ in range(sizes.posts)], CLIENTS)
    print(f"{IDLE_CONNECTIONS} connections that post, then are idle while {CLIENTS} others post")
    return print_figure("peak, MB", usage.peak_mb["consumer"], 0, most=MEMORY_BOUND_MB)


def by_command(door: Door, sizes: Sizes) -> bool:
    """Part F: one record per message and packed; a consumer reads the broker at the same time."""
    road, good = door.road, []
    urls = {"STOMP": road.broker.url, "door": f"sam+http://{HOST}:{door.port}"}
    program = str(Path(sys.executable).with_name("sam-publish"))
    home = environment(HOME=str(road.directory), STATE_DIRECTORY=str(road.directory / "state"))
    with road.consumer() as consumer:
        consumer.wait_until_subscribed()
        for options in (["--one-per-message"], []):
            row_s: dict[str, list[float]] = {name: [] for name in urls}
            for turn in range(sizes.rounds + 1):
                for name, url in urls.items():
                    count, before = sizes.posts // 3, new_message_id()
                    file = road.directory / "records"
                    file.write_text("".join(map(write_wlcg, islice(road.results, count))))
                    command = [program, "send", "--no-spool", *options, str(file), "--broker", url]
                    command += ["--destination", DESTINATION, "--timeout", f"{TIMEOUT_S:g}"]

                    def send(command: list[str] = command, count: int = count) -> None:
                        subprocess.run(command, env=home, check=True, stdout=subprocess.DEVNULL)
                        eventually(lambda: road.commits(before).rows >= count, TIMEOUT_S)  # noqa: B023

                    taken_s = seconds(send)
                    if turn:
                        row_s[name].append(taken_s / count)
            print(f"sam-publish send {' '.join(options)}, until every record is a row")
            print_speed("by STOMP, records/s", row_s["STOMP"])
            good.append(print_ratio("door / STOMP", row_s["STOMP"], row_s["door"], SEND_BOUND))
        consumer.stop()
    return all(good)


PARTS: Mapping[str, Callable[[Door, Sizes], bool]] = {
    "A": partial(compare_with_servlet, are_kept=True),
    "B": partial(compare_with_servlet, are_kept=False),
    "C": many_records,
    "D": answer_times,
    "E": memory,
    "F": by_command,
}


# Requests -------------------------------------------------------------------------------------


def request(path: str, body: bytes, *headers: str) -> bytes:
    """A POST request that keeps the connection."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {HOST}", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def door_request(message: Message) -> bytes:
    return request(
        f"/v1/messages/{message.message_class}",
        message.body,
        "Content-Type: text/plain",
        f"Sam-Message-Id: {message.message_id}",
        f"Sam-Record-Count: {message.record_count}",
    )


def servlet_request(broker: ActiveMQ5Server, message: Message, client: int | None) -> bytes:
    """A persistent message to a queue; clients that keep their connections have a number."""
    fields = {**message.headers, "body": message.body.decode()}
    client_id = "" if client is None else f"&clientId=bench-{client}"
    login = b64encode(f"{broker.user}:{broker.password}".encode()).decode()
    return request(
        f"/api/message/bench?type=queue{client_id}",
        urlencode(fields).encode(),
        f"Authorization: Basic {login}",
        "Content-Type: application/x-www-form-urlencoded",
    )


@dataclass
class Posted:
    """What became of some requests; `answer_s` is counted from when each was due."""

    took_s: float = 0.0
    answer_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)


class Connections:
    """Connections to one server, closed at the end of the block; new ones for each request unless
    they are kept.
    """

    def __init__(self, port: int, count: int, are_kept: bool = True) -> None:
        self._port = port
        self._count = count
        self._are_kept = are_kept
        self._selector = selectors.DefaultSelector()
        self._idle: list[Any] = []

    def __enter__(self) -> Connections:
        for _ in range(self._count):
            self._connect()
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def post(self, requests: Sequence[bytes], a_second: float | None = None) -> Posted:
        """Send all requests, each as soon as a connection is free, or at an even pace."""
        posted, began = Posted(), time.perf_counter()
        waiting = deque(
            (began + (number / a_second if a_second else 0), data)
            for number, data in enumerate(requests)
        )
        sent: dict[Any, float] = {}
        while waiting or sent:
            now = time.perf_counter()
            while waiting and self._idle and waiting[0][0] <= now:
                connection = self._idle.pop()
                due_at, data = waiting.popleft()
                connection.sendall(data)
                sent[connection] = due_at if a_second else now
            is_early = waiting and self._idle
            wait_s = max(waiting[0][0] - time.perf_counter(), 0) if is_early else TIMEOUT_S
            events = self._selector.select(wait_s)
            if not events and not is_early:
                raise SystemExit(f"no answer for {TIMEOUT_S:g} s")
            for key, _ in events:
                if status := _read(key.fileobj, key.data):
                    posted.statuses[status] += 1
                    posted.answer_s.append(time.perf_counter() - sent.pop(key.fileobj))
                    if self._are_kept:
                        self._idle.append(key.fileobj)
                    else:
                        self._selector.unregister(key.fileobj)
                        key.fileobj.close()  # type: ignore[union-attr]
                        self._connect()
        posted.took_s = time.perf_counter() - began
        return posted

    def _connect(self) -> None:
        connection = socket.create_connection((HOST, self._port), timeout=TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(connection, selectors.EVENT_READ, bytearray())
        self._idle.append(connection)


def _read(connection: Any, received: bytearray) -> int:
    """Read on; returns the status of a complete answer, or 0."""
    data = connection.recv(65536)
    if not data:
        raise SystemExit(f"the connection was closed after {bytes(received)!r}")
    received += data
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return 0
    length = _LENGTH.search(received, 0, end)
    if length:
        is_complete = len(received) >= end + 4 + int(length[1])
    elif _CHUNKED.search(received, 0, end):
        is_complete = received.endswith(b"\r\n0\r\n\r\n")
    else:
        raise SystemExit(f"an answer without a length: {bytes(received)!r}")
    status = int(received[9:12]) if is_complete else 0
    if status:
        received.clear()
    return status


if __name__ == "__main__":
    sys.exit(main())
