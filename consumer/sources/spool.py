"""A directory queue as a source: each element is a message, and removing it is the ack."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from sam_pipeline.consumer.core.inbox import Delivery, Inbox
from sam_pipeline.consumer.sources.claims import Claims
from sam_pipeline.schema.errors import DamagedElement, SpoolError
from sam_pipeline.schema.messages.foreign import Stamp
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.spool.queue import DirectoryQueue

POLL_S = 0.2
ROOM_S = 0.5
"""How often a source that waits for room checks whether to stop."""
PURGE_S = 60.0

logger = logging.getLogger(__name__)


class SpoolSource:
    """The queue of one `spool:///` URL; of several readers, each element goes to only one."""

    def __init__(
        self, broker: Broker, consumer: str, state: Path, stamp: Stamp, max_body_bytes: int
    ) -> None:
        """A message above `max_body_bytes` is delivered in part, marked as refused."""
        self.name = self.broker = str(broker)
        self._stamp = stamp
        self._max_body_bytes = max_body_bytes
        self._path = broker.path
        self._queue = DirectoryQueue(broker.path)
        self._consumer = consumer
        self._state = state
        self._locked: set[str] = set()
        self._read_once = False
        self._purge_at = 0.0

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        claims = Claims(self._state, self._consumer, self._path)
        try:
            self._take_back(claims.left_behind(), claims)
            while not stop.is_set():
                self._purge(time.monotonic())
                self._deliver_elements(inbox, stop, claims)
                self._read_once = True
                stop.wait(POLL_S)
        finally:
            self._take_back(self._locked, claims)
            claims.close()

    def missing(self) -> Sequence[str]:
        return [] if self._read_once else [f"{self.name} (not read yet)"]

    def ack(self, tokens: Sequence[str]) -> None:
        """Remove the elements with these names."""
        for name in tokens:
            self._queue.remove(name)
            self._locked.discard(name)

    def _take_back(self, names: Iterable[str], claims: Claims) -> None:
        """Unlock elements that were never acked by this process, or by one that was killed."""
        for name in names:
            self._queue.unlock(name)
        claims.clear()

    def _deliver_elements(self, inbox: Inbox, stop: threading.Event, claims: Claims) -> None:
        """Lock and deliver all elements that are not locked yet."""
        if not self._locked:
            claims.clear()
        for name in self._queue.names():
            if stop.is_set():
                return
            if name in self._locked:
                continue
            claims.add(name)
            if not self._queue.lock(name):  # another reader has locked or removed it
                claims.withdraw(name)
                continue
            self._locked.add(name)
            try:
                message = self._stamp.stamped(self._queue.read(name, self._max_body_bytes))
            except DamagedElement as error:
                target = self._queue.quarantine(name, str(error))
                self._locked.discard(name)
                inbox.damaged += 1
                logger.error("spool %s: %s; moved to %s", self.name, error, target)
                continue
            while not stop.is_set() and not inbox.wait_for_room(ROOM_S):
                self._purge(time.monotonic())
            headers = message.headers
            inbox.put([Delivery(message, self, name)], sum(map(len, (*headers, *headers.values()))))

    def _purge(self, now: float) -> None:
        """Every PURGE_S, refresh our locks and remove stale ones."""
        if now < self._purge_at:
            return
        self._purge_at = now + PURGE_S
        try:
            # The database may be away for longer than a lock lives.
            for name in tuple(self._locked):
                self._queue.refresh(name)
            self._queue.purge()
        except SpoolError as error:  # this loses nothing, and reading may still work
            logger.warning("%s", error)
