"""How much a spool holds, remembered in a small file: one-shot processes can't count 100 000
elements at each call.

Only a memory: what others add and remove is seen by the next recount, and a file that is lost,
damaged or busy costs one. The truth is the spool.
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
PATIENCE_S = 2.0
"""For another process that counts; it may also be stopped, so nobody waits longer."""
POLL_S = 0.01
MAX_FILE_BYTES = 64 * 1024


class SpoolCount:
    """Messages in the spool at `path` and their bytes, and how many were ever dropped from it."""

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
        """Counted too long ago; or in the future, by a clock that was set back since."""
        return abs(time.time() - self.counted_at) > RECOUNT_S

    def recount(self, queue: DirectoryQueue) -> None:
        self.messages = self.size_bytes = 0
        self.counted_at = time.time()
        for found in queue.walk([ELEMENT]):
            self.messages += 1
            self.size_bytes += found.status.st_size


class CountFile:
    """Where the count of a spool is kept for the next process."""

    def __init__(self, spool: Path, state: Optional[Path]) -> None:
        self._spool = os.path.abspath(spool)
        self._file = state and state / f"spool-{crc32(self._spool.encode()):08x}.json"
        self._own = SpoolCount(self._spool)

    def read(self) -> SpoolCount:
        """The count as it was left, perhaps by a process that still changes it."""
        if self._file is None:
            return self._own
        try:
            with open(self._file, "rb") as file:
                return self._parsed(file.read(MAX_FILE_BYTES))
        except OSError:
            return SpoolCount(self._spool)

    @contextmanager
    def changing(self) -> Iterator[SpoolCount]:
        """The count, ours alone to change; where the file can't be used, one for this process."""
        descriptor = self._open()
        if descriptor is None or not _locked(descriptor):
            yield self._own
            return
        try:
            count = self._parsed(os.read(descriptor, MAX_FILE_BYTES))
            try:
                yield count
            finally:
                _write(descriptor, count)
        finally:
            os.close(descriptor)

    def _open(self) -> int | None:
        if self._file is None:
            return None
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        try:
            return os.open(self._file, flags, 0o600)
        except FileNotFoundError:
            pass
        except OSError:
            return None
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self._file, flags, 0o600)
        return None

    def _parsed(self, content: bytes) -> SpoolCount:
        try:
            count = SpoolCount(**json.loads(content))
            figures = (count.messages, count.size_bytes, count.dropped)
            if count.path == self._spool and all(type(it) is int and it >= 0 for it in figures):
                count.counted_at += 0.0  # a number, or it is damaged
                return count
        except (ValueError, TypeError, RecursionError):
            pass
        return SpoolCount(self._spool)


def _locked(descriptor: int) -> bool:
    ends_at = time.monotonic() + PATIENCE_S
    while not flock_at_once(descriptor):
        if time.monotonic() > ends_at:
            os.close(descriptor)
            return False
        time.sleep(POLL_S)
    return True


def _write(descriptor: int, count: SpoolCount) -> None:
    """In place, and always as long: a truncation would cost more than the rest."""
    with suppress(OSError):  # such as a full disk: then the next process recounts
        size = os.fstat(descriptor).st_size
        if size > MAX_FILE_BYTES:  # it was none of ours
            os.ftruncate(descriptor, 0)
        content = json.dumps(vars(count)).encode()
        os.pwrite(descriptor, content.ljust(min(size, MAX_FILE_BYTES)), 0)
