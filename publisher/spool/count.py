"""The size of a spool, cached in a small file: a process per result can't count 100 000 elements
each time.

It is only a cache: others may add and remove elements, and a file that is lost, damaged or busy
costs a recount.
"""

from __future__ import annotations

import json
import os
import time
from binascii import crc32
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Optional

from sam_pipeline.schema.spool.directory import ELEMENT
from sam_pipeline.schema.spool.disk import flock_at_once
from sam_pipeline.schema.spool.queue import DirectoryQueue

RECOUNT_S = 60
"""An older count is not trusted."""
PATIENCE_S = 2.0
"""How long to wait for another process that has locked the file."""
POLL_S = 0.01
MAX_FILE_BYTES = 64 * 1024


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
