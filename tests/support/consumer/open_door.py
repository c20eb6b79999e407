"""A door in a thread, whose messages the test stores itself.

with open_door(answer_timeout_s=2) as door:
    answer = door.ask(post())                # in a thread of its own
    door.store()
    assert answer.result().status == 200
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from sam_pipeline.consumer.core.inbox import (
    DATABASE,
    BatchRule,
    Delivery,
    Inbox,
    MessageOutcome,
    acknowledge,
)
from sam_pipeline.consumer.core.source import delivering
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.process.listening import Listeners
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.tables import DoorConfig
from sam_pipeline.consumer.sources.door.access import Credentials, DoorSettings
from sam_pipeline.consumer.sources.door.source import HttpSource
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker import parse_broker
from tests.services.process import HOST, free_ports
from tests.support.http_client import HttpAnswer
from tests.support.raw_http import RawConnection
from tests.support.waiting import SOON_S, eventually

RULE = BatchRule(1000, 0.1, 0.01)


@dataclass
class OpenDoor:
    source: HttpSource
    inbox: Inbox
    state: State
    port: int
    threads: ThreadPoolExecutor
    stored: list[Message] = field(default_factory=list)

    def connect(self) -> RawConnection:
        return RawConnection(self.port, SOON_S)

    def ask(self, data: bytes) -> Future[HttpAnswer]:
        """Send a request on a connection of its own; its answer, once it arrives."""

        def answer() -> HttpAnswer:
            with self.connect() as connection:
                connection.send(data)
                return connection.answer()

        return self.threads.submit(answer)

    def answer(self, data: bytes) -> HttpAnswer:
        return self.ask(data).result(SOON_S)

    def take(self, count: int = 1) -> Sequence[Delivery]:
        """The next messages, which are not stored yet."""
        batch: list[Delivery] = []

        def complete() -> bool:
            batch.extend(self.inbox.take(RULE._replace(size=count - len(batch)), 0.1))
            return len(batch) == count

        eventually(complete)
        return batch

    def commit(self, batch: Sequence[Delivery], *outcomes: MessageOutcome) -> None:
        """Store these messages; by default, each has one row."""
        given = outcomes or [MessageOutcome(DATABASE, rows=1)] * len(batch)
        self.stored += [delivery.message for delivery in batch]
        acknowledge(batch, dict(enumerate(given)))

    def store(self, *outcomes: MessageOutcome) -> Message:
        """Store the next messages, as many as outcomes are given, or one; returns the last."""
        self.commit(self.take(len(outcomes) or 1), *outcomes)
        return self.stored[-1]

    @contextmanager
    def storing(self) -> Iterator[None]:
        """Store every message that arrives inside the block."""
        stop = threading.Event()

        def store() -> None:
            while not stop.is_set():
                self.commit(self.inbox.take(RULE, 0.05))

        done = self.threads.submit(store)
        try:
            yield
        finally:
            stop.set()
            done.result(SOON_S)


@contextmanager
def open_door(inbox: Inbox | None = None, **settings: Any) -> Iterator[OpenDoor]:
    """`settings`: keys of [consumer.door], `credentials`, `max_message_bytes`, `buffer_bytes`."""
    (port,) = free_ports(1)
    inbox = Inbox(1000) if inbox is None else inbox
    state = State()
    state.can_commit()
    limits = {"max_message_bytes": 100_000, "buffer_bytes": 1_000_000}
    limits = {name: settings.pop(name, limit) for name, limit in limits.items()}
    credentials = settings.pop("credentials", Credentials())
    with closing(Listeners()) as listeners, ThreadPoolExecutor(16) as threads:
        config = ConsumerConfig(door=DoorConfig(**settings), **limits)
        door_settings = DoorSettings(config, listeners, credentials)
        source = HttpSource(parse_broker(f"listen+http://{HOST}:{port}"), door_settings, state)
        with delivering([source], inbox):
            eventually(lambda: not source.missing())
            yield OpenDoor(source, inbox, state, port, threads)
        assert not [thread.name for thread in threading.enumerate() if thread.name == source.name]
