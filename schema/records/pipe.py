"""Reads a pipe, in which the next bytes may be far away."""

from __future__ import annotations

import os
import select
import time
from typing import BinaryIO, NamedTuple, Optional


class PipePatience(NamedTuple):
    """How a pipe is read: with a pause `flush_s` after its first bytes, until `stop` is readable.

    The pause lets the reader use the bytes that have arrived. `stop` is a descriptor.
    """

    flush_s: float
    stop: int


class Pipe:
    """A pipe, or another file that is not a regular one."""

    def __init__(self, file: BinaryIO, patience: PipePatience) -> None:
        self.paused = False
        """Whether `read1` returned nothing only because of a pause."""
        self._file = file
        self._patience = patience
        self._flush_at: Optional[float] = None
        self._arrives = select.poll()
        self._arrives.register(file, select.POLLIN)
        self._arrives.register(patience.stop, select.POLLIN)

    def read(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end; without pauses."""
        data = b""
        while len(data) < size:
            part = self.read1(size - len(data))
            if not part and not self.paused:
                break
            data += part
        return data

    def read1(self, size: int) -> bytes:
        """The bytes that arrived, at least one; empty at a pause and at the end."""
        self.paused = False
        wait_ms = None
        if self._flush_at is not None:
            wait_ms = max(0.0, self._flush_at - time.monotonic()) * 1000
        ready = self._arrives.poll(wait_ms)
        if not ready or wait_ms == 0:
            self._flush_at, self.paused = None, True
            return b""
        if any(descriptor == self._patience.stop for descriptor, _ in ready):
            return b""
        if self._flush_at is None:
            self._flush_at = time.monotonic() + self._patience.flush_s
        return os.read(self._file.fileno(), size)

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()
