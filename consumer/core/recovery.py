"""The files in the state directory from which a consumer recovers after a crash, and its lock."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sam_pipeline.consumer.core.inbox import NO_LIMIT, Delivery
from sam_pipeline.consumer.errors import SourceTaken
from sam_pipeline.schema.errors import SamError, SpoolError
from sam_pipeline.schema.program.command import CANNOT_CREATE
from sam_pipeline.schema.spool.disk import flock_at_once
from sam_pipeline.schema.spool.element import parse, serialise

SIZES = (1_000_000, 32, 1, 1)
"""The size of a batch with a message that was pending at 0, 1, 2 or 3 deaths."""
POISON = len(SIZES)
"""The number of deaths that make a message poison."""
FRAME_ATTEMPTS = 3
"""The number of sessions that try to read a frame."""
MAX_FRAMES = 100
"""The number of unreadable frames that are remembered."""

logger = logging.getLogger(__name__)


def open_state_file(path: Path, flags: int = 0) -> int:
    """The descriptor of a file in the state directory, created if missing; raises SpoolError."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
    except OSError as error:
        advice = "STATE_DIRECTORY can name another directory"
        problem = f"state file {path}: {error.strerror}; {advice}"
        raise SpoolError(problem, CANNOT_CREATE) from error


@contextmanager
def name_locked(directory: Path, name: str) -> Iterator[None]:
    """Hold the lock of a name inside the block: only one process with this state directory uses it.

    Artemis and RabbitMQ would silently share the messages between two processes.

    Raises:
        SourceTaken: another process holds it.
    """
    path = directory / f"consume-{name}.lock"
    file = open_state_file(path)
    try:
        if not flock_at_once(file):
            pid = os.pread(file, 20, 0).decode("ascii", "replace").strip()
            problem = f"another sam-consume named {name!r} is running (process {pid}, {path})"
            raise SourceTaken(f"{problem}: stop it, or configure another name")
        with suppress(OSError):  # a full disk: the lock holds without the number in it
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(file)


class HintFile:
    """A file that only makes recovery better or faster: an error of writing it stops nothing.

    It is not fsynced, since it need only survive the process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = open_state_file(path, os.O_APPEND)
        self._failed = False

    def read(self) -> bytes:
        return os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0)

    def append(self, data: bytes) -> None:
        try:
            os.write(self.descriptor, data)
        except OSError as error:
            if not self._failed:
                logger.warning("%s: %s; continuing without it", self.path, error.strerror)
            self._failed = True

    def replace(self, data: bytes) -> None:
        """Replace the content."""
        os.ftruncate(self.descriptor, 0)
        if data:
            self.append(data)

    def close(self) -> None:
        os.close(self.descriptor)


class Attempts(HintFile):
    """Finds messages that kill the process, or the sessions with a broker.

    A message that crashes the process would do so forever, since it is redelivered. So the ids of a
    batch are written to disk while it is decoded. After a crash these messages are stored in
    smaller and smaller batches. A message that repeatedly kills the process on its own is poison:
    it becomes a dead letter without being decoded.

    Likewise, a frame whose end is unknown ends each session that receives it, since it is
    redelivered. After some sessions the source delivers what it has of it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._deaths: dict[str, int] = {}
        """The number of deaths at which a message was pending, by message id."""
        self._frames: dict[str, int] = {}
        """The number of sessions that could not read a frame, by broker and message id."""
        self._pending: Sequence[str] = ()
        self._lock = threading.RLock()
        with suppress(ValueError, TypeError, AttributeError):  # the crash cut it short
            stored = json.loads(self.read() or b"{}")
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
        """Note that no message is at fault if the process ends now."""
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

    def _write(self, pending: Sequence[str]) -> None:
        with self._lock:
            self._pending = pending
            text = ""
            if pending or self._deaths or self._frames:
                content = {"pending": pending, "deaths": self._deaths, "frames": self._frames}
                text = json.dumps(content)
            self.replace(text.encode())


class UnstoredMessage(HintFile):
    """Keeps one message that could not be stored; it is stored first when the sink is back.

    Only storing a message shows whether a sink takes messages. Without this one, each start of a
    consumer during an outage would take messages from the brokers and give them back. Brokers count
    that: after ten deliveries, Artemis deletes a message.

    The file has the name of a broker, then the message as a spool element.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        name, _, element = self.read().partition(b"\n")
        self.delivery: Delivery | None = None
        """The message; None if the last batch was stored."""
        with suppress(SamError, ValueError):  # it was cut short
            if element:
                self.delivery = Delivery(parse(element), _Kept(name.decode()), None)

    def keep(self, batch: Sequence[Delivery]) -> None:
        """Keep a message of a batch that could not be stored.

        A sender that waits for an answer keeps its message itself.
        """
        kept = next((delivery for delivery in batch if not delivery.session.answers), None)
        if kept and self.delivery is None:
            self.delivery = kept
            name = kept.session.broker.encode()
            self.replace(name + b"\n" + serialise(kept.message))

    def forget(self) -> None:
        """A batch was stored."""
        if self.delivery is not None:
            self.delivery = None
            self.replace(b"")


class _Kept:
    """The session of the message: its broker delivers it again, so it is not acked."""

    answers = False
    batch_size = NO_LIMIT

    def __init__(self, broker: str) -> None:
        self.broker = broker

    def ack(self, tokens: Sequence[Any]) -> None:
        pass

    def give_back(self, tokens: Sequence[Any]) -> None:
        pass
