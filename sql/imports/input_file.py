"""Reads a file to import, or standard input, decompressed if it is gzipped."""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

from sam_pipeline.schema.program.command import IO_ERROR, NO_INPUT, NO_PERMISSION
from sam_pipeline.sql.errors import BadInput

STDIN = "-"
GZIP_MAGIC = b"\x1f\x8b"
SKIP_BYTES = 1024 * 1024


class InputFile:
    """Reads a file from start to end; `damage` is the reason if it stopped before the end."""

    def __init__(self, name: str) -> None:
        self.name = "<stdin>" if name == STDIN else name
        self.damage: str | None = None
        self._file = _opened(name)
        is_gzip = self._file.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC)
        self._bytes = gzip.GzipFile(fileobj=self._file) if is_gzip else self._file
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
        return self._file.tell() / result.st_size if result and result.st_size else None

    def read(self, size: int) -> bytes:
        """The next `size` bytes; fewer only at the end, or where the file is damaged."""
        parts: list[bytes] = []
        while size > 0 and not self.damage:
            try:
                part = self._bytes.read1(size)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                after = f"after {self._read_bytes} bytes: {error}"
                self.damage = f"the gzip data are truncated or corrupt {after}"
                break
            except OSError as error:
                raise _unreadable(self.name, error) from error
            if not part:
                break
            parts.append(part)
            size -= len(part)
            self._read_bytes += len(part)
        return b"".join(parts)

    def skip(self, size: int) -> None:
        while size > 0 and (part := self.read(min(size, SKIP_BYTES))):
            size -= len(part)


def refuse_missing(names: Sequence[str]) -> None:
    """Open each file once, so that a misspelt name is reported before any file is imported.

    Raises:
        BadInput: a file is missing or can't be read.
    """
    for name in names:
        if name != STDIN and not Path(name).is_fifo():  # closing it would break its writer
            _opened(name).close()


def _opened(name: str) -> io.BufferedReader:
    try:
        return open(sys.stdin.fileno() if name == STDIN else name, "rb", closefd=name != STDIN)
    except OSError as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: OSError) -> BadInput:
    reason = (error.strerror or str(error)).lower()
    if isinstance(error, PermissionError):
        return BadInput(f"{name}: {reason}; no file was imported", exit_code=NO_PERMISSION)
    if isinstance(error, (FileNotFoundError, IsADirectoryError, NotADirectoryError)):
        return BadInput(f"{name}: {reason}; no file was imported", exit_code=NO_INPUT)
    return BadInput(f"{name}: {reason} while reading", exit_code=IO_ERROR)
