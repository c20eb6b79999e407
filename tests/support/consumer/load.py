"""A publisher that retries whatever happens to its broker and records what was confirmed.

with offering(broker, destination) as load:
    broker.restart()
consumed(load.accepted, row_keys(site))
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from sam_pipeline.schema.messages.message import Message
from tests.services.broker import StompServer
from tests.support.conservation import key_of, numbered
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import eventually

CHUNK = 10
PAUSE_S = 0.1
AGAIN_S = 0.1
END_S = 60.0

BAD_EVERY = 20

Records = Callable[[str, range], list[Message]]
"""Builds messages with keys of this prefix and these numbers."""


def with_bad_ones(prefix: str, numbers: range) -> list[Message]:
    """Records of which every twentieth has a status that does not exist."""
    good = numbered(prefix, (number for number in numbers if number % BAD_EVERY))
    bad = (number for number in numbers if not number % BAD_EVERY)
    return [*good, *numbered(f"bad-{prefix}", bad, metricStatus="SPLENDID")]


@dataclass
class Load:
    """`accepted` has the keys of the records that the broker confirmed, in order."""

    broker: StompServer
    destination: str
    prefix: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    accepted: list[str] = field(default_factory=list)
    again: int = 0
    """The number of chunks that were resent, which the broker may have twice."""
    records: Records = numbered
    pause_s: float = PAUSE_S
    into: Callable[[Message], object] | None = None
    """Stores a message instead of the broker, in a spool."""

    def wait_for_more(self, count: int = 50) -> None:
        """Wait until `count` more records are confirmed."""
        target = len(self.accepted) + count
        eventually(lambda: len(self.accepted) >= target)

    def offer(self, ending: threading.Event) -> None:
        """Send chunks until `ending` is set, each again until it is confirmed."""
        for start in count(step=CHUNK):
            self._offer(start)
            if ending.wait(self.pause_s):
                return

    def _offer(self, start: int) -> None:
        messages = self.records(self.prefix, range(start, start + CHUNK))
        deadline = time.monotonic() + END_S
        while True:
            try:
                self._send(messages)
                break
            except OSError:
                self.again += 1
                assert time.monotonic() < deadline, "the broker did not come back"
                time.sleep(AGAIN_S)
        self.accepted += [key_of(message.body) for message in messages]

    def _send(self, messages: list[Message]) -> None:
        if self.into is None:
            publish(self.broker.host, self.broker.port, self.destination, messages)
            return
        for message in messages:
            self.into(message)


@contextmanager
def offering(broker: StompServer, destination: str, **settings: Any) -> Iterator[Load]:
    """Load the broker inside the block; on leaving it the last chunk is confirmed."""
    load = Load(broker, destination, **settings)
    ending = threading.Event()
    failed: list[BaseException] = []

    def offer() -> None:
        try:
            load.offer(ending)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=offer)
    thread.start()
    try:
        yield load
    finally:
        ending.set()
        thread.join(2 * END_S)
    if failed:
        raise failed[0]
