"""The HTTP door of `sam-consume`, compared with ActiveMQ's servlet and with messages by STOMP.

    python -m tests.benchmarks.door [--part A]... [--quick]

    A  posts of one record from 50 clients that keep their connections
    B  the same from clients that connect for each post, like curl and sam-publish
    C  posts of 100 records, compared with the same messages from a durable subscription
    D  the time until an answer, at an even pace of 500 posts per second
    E  memory with 2,000 connections

Into a private PostgreSQL with durable commits; every answer has to be 200, and every record a row.
Parts A and B also post to the servlet of ActiveMQ 5.18, which keeps the messages in a persistent
queue. All clients run in one process beside the servers, and do not parse the answers. The
contestants take turns, and the median of the ratios of each turn counts.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from statistics import median, quantiles
from typing import NamedTuple
from urllib.parse import quote_plus

from sam_pipeline.schema.messages.message import Message, new_message, new_message_id
from sam_pipeline.schema.records.text import write_wlcg
from tests.benchmarks.consume_drain import check
from tests.benchmarks.consume_road import Consumer, Road, road, single
from tests.benchmarks.consume_watch import Watch
from tests.benchmarks.door_client import Connections, Posted, request
from tests.benchmarks.load import print_figure, print_load, print_ratio
from tests.services.activemq5 import running_activemq5
from tests.services.postgres import as_role
from tests.services.process import HOST, free_ports, port_is_open, wait_until

BROKER = "rabbitmq"
"""On the road by STOMP."""
CLIENTS = 50
RECORDS = 100
IDLE_CONNECTIONS = 2000
PACE = 500

SINGLE_BOUND = 2000
SERVLET_BOUND = 3.0
STOMP_BOUND = 0.5
P99_BOUND_S = 0.5
MEMORY_BOUND_MB = 150


class Sizes(NamedTuple):
    """Posts of a turn, number of turns, seconds at an even pace."""

    posts: int
    rounds: int
    pace_s: float


FULL = Sizes(posts=30_000, rounds=5, pace_s=20)
QUICK = Sizes(posts=6_000, rounds=2, pace_s=5)


@dataclass
class Door:
    """A running consumer with a door."""

    port: int
    consumer: Consumer
    road: Road

    def post(self, messages: Sequence[Message], clients: int, are_kept: bool = True) -> Posted:
        """Post the messages, and make sure that each was stored."""
        before = new_message_id()
        messages = [_renewed(message) for message in messages]
        requests = [door_request(message) for message in messages]
        with Connections(HOST, self.port, clients, are_kept) as connections:
            posted = connections.post(requests)
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
        wait_until(lambda: port_is_open(port), timeout_s=60)
        yield Door(port, consumer, road)
    finally:
        consumer.end()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--quick", action="store_true", help="small sizes, for a quick check")
    args = parser.parse_args(argv)
    sizes = QUICK if args.quick else FULL
    print(f"{sizes.posts} posts a turn, {sizes.rounds} turns and one that does not count")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores")
    print_load()
    with road(BROKER) as new_road, door(new_road) as new_door:
        good = [PARTS[part](new_door, sizes) for part in args.part or PARTS]
    print_load()
    return 0 if all(good) else 1


def kept_connections(door: Door, sizes: Sizes) -> bool:
    """Part A."""
    rate, is_faster = compare_with_servlet(door, sizes.posts, sizes.rounds, are_kept=True)
    return rate >= SINGLE_BOUND and is_faster


def new_connections(door: Door, sizes: Sizes) -> bool:
    """Part B."""
    _, is_faster = compare_with_servlet(door, sizes.posts // 5, sizes.rounds, are_kept=False)
    return is_faster


def compare_with_servlet(door: Door, posts: int, rounds: int, are_kept: bool) -> tuple[float, bool]:
    """Posts of one record: the rate of the door, and whether its ratio is within the bound."""
    ours, servlet = [], []
    used: dict[str, list[float]] = defaultdict(list)
    with running_activemq5() as broker:
        login = base64.b64encode(f"{broker.user}:{broker.password}".encode()).decode()
        for turn in range(rounds + 1):
            messages = [single(door.road.results) for _ in range(posts)]
            few = messages if are_kept else messages[: posts // 5]
            pids = {"consumer": door.consumer.pid, "PostgreSQL": door.road.postgres.process.pid}
            with Watch(**pids, servlet=broker.process.pid) as usage:
                times = [time.time()]
                posted = door.post(messages, CLIENTS, are_kept)
                times.append(time.time())
                by_servlet = post_to_servlet(broker.rest_port, login, few, are_kept)
                times.append(time.time())
            if turn:
                ours.append(posted.took_s / len(messages))
                servlet.append(by_servlet.took_s / len(few))
                for name in pids:
                    used[name].append(usage.used_s(name, *times[:2]) / len(messages))
                used["servlet"].append(usage.used_s("servlet", *times[1:]) / len(few))
    print(f"one record a post, {CLIENTS} {'kept' if are_kept else 'new'} connections at a time")
    rate = 1 / median(ours)
    print_figure("door, posts/s", f"{rate:.0f}", SINGLE_BOUND if are_kept else None)
    print_figure("servlet, posts/s", f"{1 / median(servlet):.0f}")
    for name, used_s in used.items():
        print_figure(f"{name}, processor µs a post", f"{median(used_s) * 1e6:.0f}")
    return rate, print_ratio("door / servlet", servlet, ours, SERVLET_BOUND)


def many_records(door: Door, sizes: Sizes) -> bool:
    """Part C."""
    ours, by_stomp = [], []
    count = sizes.posts // 20
    for turn in range(sizes.rounds + 1):
        posted = door.post([hundred(door.road) for _ in range(count)], CLIENTS)
        after = door.road.publish(count, lambda results: hundred(door.road))
        with door.road.consumer("--drain") as consumer:
            check("messages by STOMP", consumer.wait()["messages"], count)
        commits = door.road.commits(after)
        if turn:
            ours.append(posted.took_s / (count * RECORDS))
            rows = commits.rows - commits.first_rows
            by_stomp.append((commits.last - commits.first) / rows)
    print(f"{RECORDS} records a post, {CLIENTS} clients")
    print_figure("door, records/s", f"{1 / median(ours):.0f}")
    print_figure("STOMP, records/s", f"{1 / median(by_stomp):.0f}")
    return print_ratio("door / STOMP", by_stomp, ours, STOMP_BOUND)


def answer_times(door: Door, sizes: Sizes) -> bool:
    """Part D."""
    requests = [door_request(single(door.road.results)) for _ in range(round(PACE * sizes.pace_s))]
    with Connections(HOST, door.port, CLIENTS) as connections:
        connections.post(requests[:PACE], PACE)
        posted = connections.post(requests[PACE:], PACE)
    check("answers 200", posted.statuses[200], len(requests) - PACE)
    p99_s = quantiles(posted.answer_s, n=100)[-1]
    print(f"{PACE} posts/s for {sizes.pace_s:g} s, seconds from when each was due to its answer")
    print_figure("answered, median, s", f"{median(posted.answer_s):.3f}")
    print_figure("answered, p99, s", f"{p99_s:.3f}", P99_BOUND_S, "<=")
    print_figure("answered, maximum, s", f"{max(posted.answer_s):.3f}")
    return p99_s <= P99_BOUND_S


def memory(door: Door, sizes: Sizes) -> bool:
    """Part E."""
    messages = [single(door.road.results) for _ in range(sizes.posts)]
    with (
        Watch(consumer=door.consumer.pid) as usage,
        Connections(HOST, door.port, IDLE_CONNECTIONS) as connections,
    ):
        requests = [door_request(message) for message in messages]
        posted = connections.post(requests, None)
        check("answers 200", posted.statuses[200], len(messages))
        door.post([single(door.road.results) for _ in range(sizes.posts)], CLIENTS)
    peak_mb = usage.peak_mb["consumer"]
    print(f"{IDLE_CONNECTIONS} connections that post, then are idle while {CLIENTS} others post")
    print_figure("peak, MB", f"{peak_mb:.0f}", MEMORY_BOUND_MB, "<=")
    return peak_mb <= MEMORY_BOUND_MB


PARTS: dict[str, Callable[[Door, Sizes], bool]] = {
    "A": kept_connections,
    "B": new_connections,
    "C": many_records,
    "D": answer_times,
    "E": memory,
}


# Messages and requests ------------------------------------------------------------------------


def hundred(road: Road) -> Message:
    """A message of RECORDS records."""
    body = "".join(map(write_wlcg, islice(road.results, RECORDS)))
    return new_message("metricOutput", body, record_count=RECORDS)


def door_request(message: Message) -> bytes:
    return request(
        HOST,
        f"/v1/messages/{message.message_class}",
        message.body,
        "Content-Type: text/plain",
        f"Sam-Message-Id: {message.message_id}",
        f"Sam-Record-Count: {message.record_count}",
    )


def post_to_servlet(port: int, login: str, messages: Sequence[Message], are_kept: bool) -> Posted:
    """Post persistent messages to a queue; clients that keep their connections have an id."""
    requests = []
    for number, message in enumerate(messages):
        fields = {**message.headers, "body": message.body.decode()}
        form = "&".join(f"{key}={quote_plus(value)}" for key, value in fields.items())
        client_id = f"&clientId=bench-{number % CLIENTS}" if are_kept else ""
        path = f"/api/message/bench?type=queue{client_id}"
        form_type = "Content-Type: application/x-www-form-urlencoded"
        requests.append(
            request(HOST, path, form.encode(), f"Authorization: Basic {login}", form_type)
        )
    with Connections(HOST, port, CLIENTS, are_kept) as connections:
        posted = connections.post(requests)
    check("answers 200 of the servlet", posted.statuses[200], len(messages))
    return posted


def _renewed(message: Message) -> Message:
    """The message with an id of now, by which its commit is found."""
    return new_message(
        message.message_class or "", message.body.decode(), record_count=message.record_count
    )


if __name__ == "__main__":
    sys.exit(main())
