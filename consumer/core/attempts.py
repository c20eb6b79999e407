"""Finds messages that kill the process, or the sessions with a broker.

A message that crashes the process would do so forever, since it is redelivered. So the ids of a
batch are written to disk while it is decoded. After a crash these messages are stored in smaller
and smaller batches. A message that repeatedly kills the process on its own is poison: it becomes a
dead letter without being decoded.

Likewise, a frame whose end is unknown ends each session that receives it, since it is redelivered.
After some sessions the source delivers what it has of it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from sam_pipeline.consumer.core.inbox import Delivery
from sam_pipeline.consumer.process.hint_file import HintFile

SIZES = (1_000_000, 32, 1, 1)
"""The size of a batch with a message that was pending at 0, 1, 2 or 3 deaths."""
POISON = len(SIZES)
"""The number of deaths that make a message poison."""
FRAME_ATTEMPTS = 3
"""The number of sessions that try to read a frame."""
MAX_FRAMES = 100
"""The number of unreadable frames that are remembered."""


class Attempts:
    """The file of one consumer."""

    def __init__(self, path: Path) -> None:
        self._file = HintFile(path)
        self._deaths: dict[str, int] = {}
        """The number of deaths at which a message was pending, by message id."""
        self._frames: dict[str, int] = {}
        """The number of sessions that could not read a frame, by broker and message id."""
        self._pending: Sequence[str] = ()
        self._lock = threading.RLock()
        with suppress(ValueError, TypeError, AttributeError):  # the crash cut it short
            stored = json.loads(self._file.read() or b"{}")
            deaths = dict(stored.get("deaths", {}))
            for message_id in stored.get("pending", ()):
                deaths[message_id] = deaths.get(message_id, 0) + 1
            self._deaths = deaths
            self._frames = dict(stored.get("frames", {}))
        if self._deaths:
            self._write([])

    def parts(self, batch: Sequence[Delivery]) -> Iterator[Sequence[Delivery]]:
        """The batch, in order, in parts that may be stored together."""
        if batch and not self._deaths:
            yield batch
            return
        part: list[Delivery] = []
        part_size = SIZES[0]
        for delivery in batch:
            deaths = self._deaths.get(delivery.message.message_id, 0)
            size = SIZES[min(deaths, POISON - 1)]
            if part and len(part) >= min(part_size, size):
                yield part
                part, part_size = [], SIZES[0]
            part.append(delivery)
            part_size = min(part_size, size)
        if part:
            yield part

    def poison(self, batch: Sequence[Delivery]) -> set[str]:
        """The ids of messages that must not be decoded."""
        if not self._deaths:
            return set()
        ids = {delivery.message.message_id for delivery in batch}
        return {message_id for message_id in ids if self._deaths.get(message_id, 0) >= POISON}

    @contextmanager
    def decoding(self, batch: Sequence[Delivery]) -> Iterator[None]:
        """While the block runs, or if it raises, the end of the process counts as a death.

        A process that ends while it waits for the database has not been killed by a message.
        """
        self._write([delivery.message.message_id for delivery in batch])
        yield
        self.forgive()

    def forgive(self) -> None:
        """No message is at fault if the process ends now."""
        self._write([])

    def end(self, batch: Sequence[Delivery]) -> None:
        """The batch was stored."""
        if self._deaths:
            for delivery in batch:
                self._deaths.pop(delivery.message.message_id, None)
            self._write([])

    def is_last_for_frame(self, broker: str, message_id: str) -> bool:
        """Count a session that could not read a frame; whether it was the last to try.

        The sources call it, each in its own thread.
        """
        with self._lock:
            key = f"{broker} {message_id}"
            count = self._frames.pop(key, 0) + 1
            if count < FRAME_ATTEMPTS:
                self._frames[key] = count
            while len(self._frames) > MAX_FRAMES:
                del self._frames[next(iter(self._frames))]
            self._write(self._pending)
        return count >= FRAME_ATTEMPTS

    def close(self) -> None:
        self._file.close()

    def _write(self, pending: Sequence[str]) -> None:
        with self._lock:
            self._pending = pending
            text = ""
            if pending or self._deaths or self._frames:
                content = {"pending": pending, "deaths": self._deaths, "frames": self._frames}
                text = json.dumps(content)
            self._file.replace(text.encode())
