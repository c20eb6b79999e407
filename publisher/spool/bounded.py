"""The spool with its limits on messages and bytes; every message is stored through this class.

    spool = BoundedSpool(config.spool, config.spool_limits, config.shares_spool)
    for message in spool.add_all(messages):  # yields each once it is on disk
        …

A full spool refuses messages (exit code 74) or drops its oldest elements, see `spool_when_full`.

Its size is cached in a small file: a process per result can't count 100 000 elements each time.
Others may add and remove elements, and a file that is lost, damaged or busy costs a recount.

Lost results, neither published nor spooled, are also counted. If the disk of the spool is full or
read-only, that of the state directory most likely is as well. So this count is written to the first
place that takes it: the state directory, memory, or /tmp.
"""

from __future__ import annotations

import json
import os
import stat
import time
from binascii import crc32
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Optional

from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker import SpoolLimits
from sam_pipeline.schema.settings.files import state_dir
from sam_pipeline.schema.spool.directory import ASIDE, ELEMENT
from sam_pipeline.schema.spool.disk import flock_at_once
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.schema.spool.queue import BATCH, DirectoryQueue

SLACK = 100
"""A full spool drops 1/100 of its limit at once, because it is counted before every drop."""
_FULL = 74
RECOUNT_S = 60
"""An older count is not trusted."""
PATIENCE_S = 2.0
"""How long to wait for another process that has locked the file."""
POLL_S = 0.01
MAX_FILE_BYTES = 64 * 1024

LOSSES = "losses"
ELSEWHERE = ("/dev/shm", "/tmp")
LONGEST = 64
"""The bytes of the file: once it exists, a full disk still takes the next count."""

logger = lazy_logger(__name__)


class BoundedSpool:
    """The spool at `path`, with its limits; `shared` by a group or not."""

    def __init__(self, path: Path, limits: SpoolLimits, shared: bool) -> None:
        self._path = path
        self._limits = limits
        self._count = CountFile(path, limits.state)
        self._queue = DirectoryQueue(path, shared)

    def add(self, message: Message) -> str:
        """Store the message durably and return the name of its element.

        Raises:
            SpoolError: the spool or the disk is full; nothing of the message is stored.
        """
        content = serialise(message)
        self._reserve([message], [content])
        return self._queue.store(content)

    def add_all(self, messages: Sequence[Message]) -> Iterator[Message]:
        """Yield the messages in order, each once it is durable; faster than adding them singly.

        Raises:
            SpoolError: the messages that were not yielded are not in the spool.
        """
        for start in range(0, len(messages), BATCH):
            batch = messages[start : start + BATCH]
            contents = [serialise(message) for message in batch]
            try:
                self._reserve(batch, contents)
            except SpoolError:
                if len(batch) == 1:
                    raise
                for message in batch:  # as many as there is room for
                    self.add(message)
                    yield message
            else:
                yield from (m for m, _ in zip(batch, self._queue.store_all(contents)))

    def _reserve(self, messages: Sequence[Message], contents: Sequence[bytes]) -> None:
        need = (len(contents), sum(map(len, contents)))
        with self._count.changing() as count:
            if count.stale or not self._fits(count, need):
                count.recount(self._queue)  # refuse and drop only by an exact count
            if not self._fits(count, need) and self._limits.drops_oldest:
                self._drop_oldest(count, need)
            if not self._fits(count, need):
                limits, single = self._limits, need[0] == 1
                usage = f"{count.messages} of {limits.max_messages} messages"
                usage += f", {count.size_bytes} of {limits.max_bytes} bytes"
                refused = f"message {messages[0].message_id}" if single else f"{need[0]} messages"
                problem = f"the spool {self._path} is full ({usage}), {refused} of {need[1]} bytes"
                advice = "drain it, or raise spool_max_messages, spool_max_bytes"
                if any(self._queue.aside()):
                    advice = f"drop the elements set aside in {self._path}.bad, {advice}"
                raise SpoolError(f"{problem} refused: {advice}", _FULL)
            count.messages += need[0]
            count.size_bytes += need[1]

    def _fits(self, count: SpoolCount, need: tuple[int, int]) -> bool:
        return (
            count.messages + need[0] <= self._limits.max_messages
            and count.size_bytes + need[1] <= self._limits.max_bytes
        )

    def _drop_oldest(self, count: SpoolCount, need: tuple[int, int]) -> None:
        """Drop elements until there is room for `need` (messages, bytes), and some more.

        Quarantined elements come first: no broker gets them.
        """
        if not self._fits(SpoolCount(""), need):  # too much for an empty spool
            return
        limits = self._limits.max_messages, self._limits.max_bytes
        room = max(need[0], limits[0] // SLACK), max(need[1], limits[1] // SLACK)
        dropped, size_bytes = 0, 0
        for entry in chain(self._queue.aside(), self._queue.walk([ELEMENT])):
            if self._fits(count, room):
                break
            with suppress(SpoolError):  # it belongs to another user: try the next one
                if entry.role == ASIDE:
                    self._queue.remove_aside(entry.name)
                elif self._queue.lock(entry.name):  # else another process works on it
                    self._queue.remove(entry.name)
                else:
                    continue
                size = entry.status.st_size
                dropped, size_bytes = dropped + 1, size_bytes + size
                count.messages, count.size_bytes = count.messages - 1, count.size_bytes - size
        count.dropped += dropped
        text = "the spool %s is full: dropped its %s oldest messages (%s bytes), %s in total"
        logger.error(text, self._path, dropped, size_bytes, count.dropped)


class SpoolCount:
    """The messages in the spool at `path`, their bytes, and how many were ever dropped from it."""

    def __init__(
        self,
        path: str,
        messages: int = 0,
        size_bytes: int = 0,
        dropped: int = 0,
        counted_at: float = 0.0,
    ) -> None:
        self.path = path
        self.messages = messages
        self.size_bytes = size_bytes
        self.dropped = dropped
        self.counted_at = counted_at

    @property
    def stale(self) -> bool:
        """Whether it was counted too long ago; or in the future, before the clock was set back."""
        return abs(time.time() - self.counted_at) > RECOUNT_S

    def recount(self, queue: DirectoryQueue) -> None:
        """Count the elements of the queue and those that were set aside."""
        self.messages = self.size_bytes = 0
        self.counted_at = time.time()
        for entries in (queue.walk([ELEMENT]), queue.aside()):
            for entry in entries:
                self.messages += 1
                self.size_bytes += entry.status.st_size


class CountFile:
    """The file in the state directory that keeps the count of a spool for the next process."""

    def __init__(self, spool: Path, state: Optional[Path]) -> None:
        self._spool = os.path.abspath(spool)
        self._file = state and state / f"spool-{crc32(self._spool.encode()):08x}.json"
        self._own = SpoolCount(self._spool)

    def read(self) -> SpoolCount:
        """The last count that was written; another process may be changing it."""
        if self._file is None:
            return self._own
        try:
            with open(self._file, "rb") as file:
                return self._parsed(file.read(MAX_FILE_BYTES))
        except OSError:
            return SpoolCount(self._spool)

    @contextmanager
    def changing(self) -> Iterator[SpoolCount]:
        """The count, locked, and written back; if the file can't be used, one in memory."""
        descriptor = self._open_locked()
        if descriptor is None:
            yield self._own
            return
        try:
            count = self._parsed(os.read(descriptor, MAX_FILE_BYTES))
            try:
                yield count
            finally:
                # In place, and never shorter: truncation is the slowest part.
                with suppress(OSError):  # such as a full disk: the next process recounts
                    size = os.fstat(descriptor).st_size
                    if size > MAX_FILE_BYTES:  # we never write that much
                        os.ftruncate(descriptor, 0)
                    content = json.dumps(vars(count)).encode()
                    os.pwrite(descriptor, content.ljust(min(size, MAX_FILE_BYTES)), 0)
        finally:
            os.close(descriptor)

    def _open_locked(self) -> int | None:
        """The descriptor of the locked file; None if it can't be used."""
        if self._file is None:
            return None
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        try:
            try:
                descriptor = os.open(self._file, flags, 0o600)
            except FileNotFoundError:
                self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = os.open(self._file, flags, 0o600)
        except OSError:
            return None
        ends_at = time.monotonic() + PATIENCE_S
        while not flock_at_once(descriptor):
            if time.monotonic() > ends_at:
                os.close(descriptor)
                return None
            time.sleep(POLL_S)
        return descriptor

    def _parsed(self, content: bytes) -> SpoolCount:
        with suppress(ValueError, TypeError, RecursionError):
            count = SpoolCount(**json.loads(content))
            numbers = (count.messages, count.size_bytes, count.dropped)
            if count.path == self._spool and all(type(n) is int and n >= 0 for n in numbers):
                count.counted_at += 0.0  # fails unless it is a number
                return count
        return SpoolCount(self._spool)


def count_losses(state: Optional[Path], results: int) -> None:
    """Add to the count, in the first place that takes it."""
    for place in _places(state):
        with suppress(OSError, ValueError), _opened(place, os.O_RDWR | os.O_CREAT) as descriptor:
            flock_at_once(descriptor)
            before, _ = _parsed(os.pread(descriptor, LONGEST, 0))
            text = f"{before + results} {time.time():.0f}".ljust(LONGEST - 1) + "\n"
            os.pwrite(descriptor, text.encode(), 0)
            return


def counted_losses(state: Optional[Path]) -> Iterator[tuple[int, int]]:
    """The counts that this account has written on this host, each with the time of its last one."""
    for place in _places(state):
        with suppress(OSError, ValueError), _opened(place, os.O_RDONLY) as descriptor:
            yield _parsed(os.pread(descriptor, LONGEST, 0))


def _places(state: Optional[Path]) -> Iterator[str]:
    """Where the count may be: without a configuration, `state` is not known."""
    for own in dict.fromkeys(filter(None, (state, state_dir(os.environ)))):
        yield os.path.join(own, LOSSES)
    for directory in ELSEWHERE:
        yield f"{directory}/sam-publish-{LOSSES}-{os.geteuid()}"


@contextmanager
def _opened(path: str, flags: int) -> Iterator[int]:
    """A descriptor; raises OSError for a file that another user may have planted there."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
            raise PermissionError(path)
        yield descriptor
    finally:
        os.close(descriptor)


def _parsed(content: bytes) -> tuple[int, int]:
    """The content of a file, 0 for an empty one; raises ValueError."""
    results, last = content.split() or (0, 0)
    return int(results), int(last)
