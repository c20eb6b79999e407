"""Whatever message a broker or a spool accepts: within a minute it is rows, dead letters or a
counted refusal, the next message is loaded, and memory stays bounded."""

from __future__ import annotations

import random
import re
import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.conftest import BROKERS
from tests.services.broker import StompServer
from tests.services.postgres import PostgresServer, fresh_database
from tests.support.consumer.daemon import Subscription, running, site_of
from tests.support.consumer.drawn_messages import DrawnMessage, draw_message, good_message
from tests.support.consumer.site import Site, eventually, subscribe

MESSAGES = 60
"""Drawn for each road, each followed by a good one."""
WITHIN_S = 60.0
MAX_RSS_KB = 150 * 1024
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
            self.connection = socket.create_connection(
                (self.broker.host, self.broker.port), ANSWER_S
            )
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


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/sam.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return fresh_database(server)


@pytest.fixture
def brokers(request: pytest.FixtureRequest) -> list[StompServer]:
    return [request.getfixturevalue(name) for name in BROKERS]


def test_any_accepted_message_is_accounted_for_and_the_next_one_is_loaded(
    tmp_path: Path, database: str, brokers: list[StompServer]
) -> None:
    chance = random.Random(len(database))
    destination = f"/topic/grid.probe.{uuid.uuid4().hex}"
    spool = tmp_path / "spool"
    urls = [*(broker.url for broker in brokers), f"spool://{spool}"]
    site = site_of(tmp_path, urls, Subscription(destination), database=database)
    for broker in brokers:
        subscribe(broker, site.name, destination)
    accepted: list[str] = []
    good: list[str] = []

    with running(site) as daemon, ExitStack() as stack:
        for broker in brokers:
            sender = stack.enter_context(closing(Sender(broker, destination)))
            for message in drawn(chance, broker.url.rpartition(":")[2]):
                if sender.send(message):
                    accepted.append(message.mark)
                following = good_message(f"{message.mark}-good")
                assert sender.send(following)
                good.append(following.mark)
        queue = DirectoryQueue(spool)
        for message in drawn(chance, "spool"):
            following = good_message(f"{message.mark}-good")
            for element in (message, following):
                queue.add(as_spooled(element))
            accepted.append(message.mark)
            good.append(following.mark)

        with suppress(AssertionError):
            eventually(lambda: not missing(site, [*accepted, *good]), WITHIN_S)
        assert missing(site, [*accepted, *good]) == set(), daemon.log[-5000:]
        rows = site.column("SELECT summaryData FROM metricOutput")
        peak_kb = int(re.search(r"VmHWM:\s+(\d+)", status_of(daemon.process.pid))[1])
        assert daemon.stop().code == 0, daemon.log

    assert set(good) <= set(rows)
    assert peak_kb <= MAX_RSS_KB
    assert site.drain().summary["messages"] == 0, "acked and taken from every road"


def drawn(chance: random.Random, road: str) -> Iterator[DrawnMessage]:
    return (draw_message(chance, f"m{road}x{number:03}") for number in range(MESSAGES))


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
    found = set(re.findall(r"m\w+x\d\d\d(?:-good)?", "\n".join(stored)))
    return set(marks) - found


def status_of(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text()
