"""The bytes of a file to import, or of standard input, gunzipped where they are gzipped."""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from sam_pipeline.schema.program.command import IO_ERROR, NO_INPUT, NO_PERMISSION
from sam_pipeline.sql.errors import BadInput

STDIN = "-"
GZIP_MAGIC = b"\x1f\x8b"
SKIP_BYTES = 1024 * 1024


class InputFile:
    """Reads from the front to the back; `damage` says why it ended before its end."""

    def __init__(self, name: str) -> None:
        self.name = "<stdin>" if name == STDIN else name
        self.damage: str | None = None
        self._file = _opened(name)
        is_gzip = self._file.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC)
        self._bytes = gzip.GzipFile(fileobj=self._file) if is_gzip else self._file
        self._given = 0

    def __enter__(self) -> InputFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    @property
    def facts(self) -> os.stat_result | None:
        """Of a regular file; None of a pipe, which can't be read a second time."""
        found = os.fstat(self._file.fileno())
        return found if stat.S_ISREG(found.st_mode) and self.name != "<stdin>" else None

    @property
    def share(self) -> float | None:
        """How much of it was read, 0 to 1; None where the size isn't known."""
        facts = self.facts
        return self._file.tell() / facts.st_size if facts and facts.st_size else None

    def read(self, size: int) -> bytes:
        """So many bytes; fewer only at the end."""
        parts = []
        while size > 0 and (part := self._read_some(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def skip(self, size: int) -> None:
        """Go on behind so many bytes."""
        while size > 0 and (part := self.read(min(size, SKIP_BYTES))):
            size -= len(part)

    def _read_some(self, size: int) -> bytes:
        if self.damage:
            return b""
        try:
            part = self._bytes.read1(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self.damage = f"the gzip data end or break after {self._given} bytes: {error}"
            return b""
        except OSError as error:
            raise _unreadable(self.name, error) from error
        self._given += len(part)
        return part


def refuse_missing(names: Sequence[str]) -> None:
    """All files are opened once before anything is done: a misspelt last one is told at once.

    Raises:
        BadInput: one is missing or may not be read.
    """
    for name in names:
        if name != STDIN and not Path(name).is_fifo():  # whose writer would see its reader go
            _opened(name).close()


def _opened(name: str) -> io.BufferedReader:
    try:
        return open(sys.stdin.fileno() if name == STDIN else name, "rb", closefd=name != STDIN)
    except OSError as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: OSError) -> BadInput:
    reason = (error.strerror or str(error)).lower()
    if isinstance(error, PermissionError):
        return BadInput(f"{name}: {reason}: make it readable, or ask its owner", NO_PERMISSION)
    if isinstance(error, (FileNotFoundError, IsADirectoryError, NotADirectoryError)):
        return BadInput(f"{name}: {reason}; no file was imported", NO_INPUT)
    return BadInput(f"{name}: {reason} while it was read", IO_ERROR)
