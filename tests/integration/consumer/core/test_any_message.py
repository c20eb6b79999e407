"""Whatever message a broker or a spool accepts: within a minute it is rows, dead letters or a
counted refusal, the next message is loaded, and memory stays bounded. So it is in a flood."""

from __future__ import annotations

import random
import re
import socket
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from sam_pipeline.consumer.errors import NoState
from sam_pipeline.consumer.monitoring.snapshot import STUCK_AFTER
from sam_pipeline.consumer.monitoring.state_file import read_state
from sam_pipeline.schema.messages.message import CLASS, CONTENT_TYPE, JSON, MESSAGE_ID, Message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services.broker import StompServer
from tests.services.brokers import BROKERS
from tests.support.conservation import numbered
from tests.support.consumer.daemon import Subscription, running, site_of
from tests.support.consumer.drawn_messages import DrawnMessage, draw_message, good_message
from tests.support.consumer.memory import peak_mb
from tests.support.consumer.site import WAIT_S, Site, eventually, subscribe

MESSAGES = 25
"""Drawn for each road, each followed by a good one."""
MAX_RSS_MB = 150
ANSWER_S = 5.0


@dataclass
class Sender:
    """Sends single frames to one broker, over a new connection whenever the last one was closed."""

    broker: StompServer
    destination: str
    connection: socket.socket | None = None

    def send(self, message: DrawnMessage) -> bool:
        """Whether the broker confirmed the message."""
        if self.connection is None:
            address = (self.broker.host, self.broker.port)
            self.connection = socket.create_connection(address, ANSWER_S)
            self.connection.sendall(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
            assert self._answer().startswith(b"CONNECTED")
        own = [
            (b"destination", self.destination.encode()),
            *[(b"persistent", b"true"), (b"receipt", b"done")],
            (b"content-length", str(len(message.body)).encode()),
        ]
        lines = [b"SEND", *map(b":".join, [*own, *message.headers]), b"", b""]
        answer = b""
        with suppress(OSError):
            self.connection.sendall(b"\n".join(lines) + message.body + b"\0")
            answer = self._answer()
        if answer.startswith(b"RECEIPT"):
            return True
        self.close()
        return False

    def close(self) -> None:
        if self.connection:
            self.connection.close()
        self.connection = None

    def _answer(self) -> bytes:
        """One frame, or what arrived before the connection was closed or silent."""
        assert self.connection
        received = b""
        with suppress(OSError):
            while b"\0" not in received and (data := self.connection.recv(65536)):
                received = (received + data).lstrip(b"\n")  # heart-beats
        return received


def test_any_accepted_message_is_accounted_for_and_the_next_one_is_loaded(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str
) -> None:
    chance, accepted, good = random.Random(10), list[str](), list[str]()
    brokers: list[StompServer] = [request.getfixturevalue(name) for name in BROKERS]
    destination = f"/topic/grid.probe.{uuid.uuid4().hex}"
    urls = [*(broker.url for broker in brokers), f"spool://{tmp_path}/spool"]
    site = site_of(tmp_path, urls, Subscription(destination), database=postgres_url)
    for broker in brokers:
        subscribe(broker, site.name, destination)

    with running(site) as daemon, ExitStack() as stack:
        for broker in brokers:
            sender = stack.enter_context(closing(Sender(broker, destination)))
            for message, following in drawn(chance, broker.url.rpartition(":")[2]):
                if sender.send(message):
                    accepted.append(message.mark)
                assert sender.send(following)
                good.append(following.mark)
        queue = DirectoryQueue(tmp_path / "spool")
        for message, following in drawn(chance, "spool"):
            queue.add(as_spooled(message))
            queue.add(as_spooled(following))
            accepted.append(message.mark)
            good.append(following.mark)

        with suppress(TimeoutError):
            eventually(lambda: not missing(site, [*accepted, *good]), WAIT_S)
        assert missing(site, [*accepted, *good]) == set(), daemon.log[-5000:]
        assert peak_mb(daemon.process.pid) <= MAX_RSS_MB
        assert daemon.stop().code == 0, daemon.log

    assert set(good) <= {*site.column("SELECT summaryData FROM metricOutput")}
    assert site.drain().summary["messages"] == 0, "acked and taken from every road"


def drawn(chance: random.Random, road: str) -> Iterator[tuple[DrawnMessage, DrawnMessage]]:
    """Messages, each with the good one that follows."""
    for number in range(MESSAGES):
        mark = f"m{road}x{number:03}"
        yield draw_message(chance, mark), good_message(f"{mark}-good")


def as_spooled(message: DrawnMessage) -> Message:
    """The message as a foreign writer of the spool might store it."""
    headers = {
        name.decode(errors="surrogateescape"): value.decode(errors="surrogateescape")
        for name, value in message.headers
    }
    return Message(headers, message.body)


def missing(site: Site, marks: Sequence[str]) -> set[str]:
    """The messages that are neither rows nor dead letters."""
    stored = [
        *site.column("SELECT summaryData || ' ' || coalesce(messageId, '') FROM metricOutput"),
        *site.column("SELECT message_id || ' ' || error || ' ' || headers FROM dead_letter"),
        *(body.decode(errors="replace") for body in site.letter_bodies()),
    ]
    return set(marks) - set(re.findall(r"m\w+x\d\d\d(?:-good)?", "\n".join(stored)))


def bad(name: str, body: bytes, **headers: str) -> Message:
    return Message({CLASS: "metricOutput", MESSAGE_ID: name, **headers}, body)


def flood() -> Iterator[Message]:
    as_json = {CONTENT_TYPE: JSON}
    nested = f'["{"x" * 100_000}"{(", " + "[" * 500 + "]" * 500) * 500}]'.encode()
    for number in range(5):
        yield bad(f"many-{number}", b"x\nEOT\n" * 10_000)
        yield bad(f"json-{number}", f"[{','.join(['{}'] * 10_000)}]".encode(), **as_json)
    for number in range(2):
        yield bad(f"deep-{number}", nested, **as_json)
    for number in range(600):
        yield bad(f"one-{number}", b"x\nEOT\n")


def test_a_flood_of_bad_records_neither_delays_the_next_one_nor_fills_the_disk(
    tmp_path: Path, own_url: str
) -> None:
    limits = {"dead_letters_per_hour": 100, "dead_letter_bytes_per_hour": 2_000_000}
    topic, spool = Subscription("/topic/none"), f"spool://{tmp_path}/spool"
    site = site_of(tmp_path, [spool], topic, database=own_url, **limits)
    bads = [*flood()]
    site.fill(*bads, *numbered("after", [1]))
    size_before, oldest_turn_s = database_size(site), 0.0

    with running(site):
        began = time.monotonic()
        while site.rows() == 0:
            assert time.monotonic() - began < WAIT_S
            oldest_turn_s = max(oldest_turn_s, seconds_since_the_last_turn(site))
            time.sleep(0.2)

    assert oldest_turn_s < STUCK_AFTER.total_seconds() / 4
    assert database_size(site) - size_before < 8_000_000
    names = ("messages", "rows", *(f"{it}dead_letters" for it in ("", "repeated_", "summarised_")))
    messages, rows, letters, repeated, summarised = (
        int(site.scalar(f"SELECT sum({name}) FROM load_audit")) for name in names
    )
    summaries = site.scalar("SELECT count(*) FROM dead_letter WHERE reason = 'flood'")
    assert (rows, summaries, letters) == (1, 1, 100 + 1)
    assert messages == len(bads) + 1 == rows + letters - summaries + repeated + summarised


def database_size(site: Site) -> int:
    if site.database.startswith("sqlite"):
        return sum(path.stat().st_size for path in site.config.parent.glob("sam.db*"))
    return int(site.scalar("SELECT pg_database_size(current_database())"))


def seconds_since_the_last_turn(site: Site) -> float:
    """As the state file says, from which the watchdog decides."""
    try:
        state = read_state([site.config.with_name(site.state)], site.name)
    except NoState:
        return 0.0
    return (state.written_at - state.turned_at).total_seconds()
