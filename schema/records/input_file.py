"""Reads a file of records, or standard input, decompressed if it is gzipped."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from typing import BinaryIO

from sam_pipeline.schema.errors import UnreadableInput
from sam_pipeline.schema.records.pipe import Pipe, PipePatience

STDIN = "-"
GZIP_MAGIC = b"\x1f\x8b"
BLOCK_BYTES = 512 * 1024
"""Bytes read at a time: an input of any length needs little memory."""


class InputFile:
    """Reads a file from start to end; `damage` is the reason if it stopped before the end.

    A gzip may have several members. It is recognised by its first bytes, also from a pipe. With
    `patience`, `read` returns what a pipe has brought when it pauses; then `paused` is true.

    Raises:
        UnreadableInput: the file can't be opened; `read` also raises it.
    """

    def __init__(
        self, name: str, decompress: bool = True, patience: PipePatience | None = None
    ) -> None:
        self.name = _title(name)
        self.damage: str | None = None
        self.paused = False
        self._file: BinaryIO | Pipe = _opened(name, "it was not read")
        if patience and not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            self._file = Pipe(self._file, patience)
        self._next = _Rejoined(self._read_raw(len(GZIP_MAGIC)), self._file)
        self._bytes: BinaryIO | _Rejoined = self._next
        self._damages: tuple[type[Exception], ...] = ()
        if decompress and self._next.head == GZIP_MAGIC:
            import gzip  # slow to import, and most files are not compressed
            import zlib

            self._bytes = gzip.GzipFile(fileobj=self._next)  # type: ignore[call-overload]
            self._damages = (EOFError, zlib.error, gzip.BadGzipFile)
        self._unread = b""
        self._read_bytes = 0

    def __enter__(self) -> InputFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def stat_result(self) -> os.stat_result | None:
        """Size and times of a regular file; None for a pipe, which can't be read again."""
        result = os.fstat(self._file.fileno())
        return result if stat.S_ISREG(result.st_mode) and self.name != "<stdin>" else None

    @property
    def share(self) -> float | None:
        """The part of the file that has been read, 0 to 1; None if its size is unknown."""
        result = self.stat_result
        if not result or not result.st_size or isinstance(self._file, Pipe):
            return None
        return self._file.tell() / result.st_size

    def read(self, size: int = sys.maxsize) -> bytes:
        """The next `size` bytes; fewer only at the end or a pause, or where the file is damaged."""
        parts = [self._unread[:size]]
        self._unread = self._unread[size:]
        size -= len(parts[0])
        if self.paused and parts[0]:
            return parts[0]
        self.paused = False
        while size > 0 and not self.damage:
            try:
                part = self._bytes.read1(min(size, BLOCK_BYTES))  # type: ignore[union-attr]
            except self._damages as error:
                after = f"after {self._read_bytes} bytes: {error}"
                self.damage = f"the gzip data are truncated or corrupt {after}"
                break
            except OSError as error:
                raise UnreadableInput(self.name, error, "the rest of it was not read") from error
            if not part:
                self.paused = isinstance(self._file, Pipe) and self._file.paused
                break
            parts.append(part)
            size -= len(part)
            self._read_bytes += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def unread(self, body: bytes) -> None:
        """Give back bytes that `read` has returned: it returns them again."""
        self._unread = body + self._unread

    def skip(self, size: int) -> None:
        while size > 0 and (part := self.read(min(size, BLOCK_BYTES))):
            size -= len(part)

    def _read_raw(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except OSError as error:
            raise UnreadableInput(self.name, error, "the rest of it was not read") from error


class _Rejoined:
    """A file whose first bytes were read already: a pipe can't be read again."""

    def __init__(self, head: bytes, file: BinaryIO | Pipe) -> None:
        self.head = head
        self._file = file

    def read(self, size: int) -> bytes:
        first, self.head = self.head[:size], self.head[size:]
        return first + self._file.read(size - len(first))

    def read1(self, size: int) -> bytes:
        """At least one byte, except at the end."""
        first, self.head = self.head[:size], self.head[size:]
        return first or self._file.read1(size)  # type: ignore[union-attr]


def refuse_missing(names: Sequence[str], consequence: str) -> None:
    """Open each file once, so that a misspelt name is reported before any file is used.

    Raises:
        UnreadableInput: a file is missing or can't be read.
    """
    for name in names:
        if name != STDIN and not _is_fifo(name):  # closing it would break its writer
            _opened(name, consequence).close()


def _is_fifo(name: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(name).st_mode)
    except OSError:
        return False


def _opened(name: str, consequence: str) -> BinaryIO:
    try:
        if name != STDIN:
            return open(name, "rb")
        if sys.stdin is None:
            raise FileNotFoundError("standard input is closed")
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except OSError as error:
        raise UnreadableInput(_title(name), error, consequence) from error


def _title(name: str) -> str:
    return "<stdin>" if name == STDIN else name
