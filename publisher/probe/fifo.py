"""Reads a named pipe (FIFO) whose writers come and go, line by line.

A file that Nagios calls its external command file is one. Several lines, or a line of at most 4096
bytes, that are written at once stay together; the lines of writers that write more may mix.
"""

from __future__ import annotations

import fcntl
import os
import select
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Union

from sam_pipeline.publisher.errors import FifoError
from sam_pipeline.publisher.probe.input import Pause
from sam_pipeline.schema.errors import CANNOT_CREATE, NO_PERMISSION
from sam_pipeline.schema.records.input_file import Pipe, PipePatience
from sam_pipeline.schema.spool.disk import flock_at_once

MAX_LINE_BYTES = 1024 * 1024
BLOCK_BYTES = 64 * 1024
CAPACITY_BYTES = 1024 * 1024
"""What the kernel stores while nobody reads; the most that an ordinary account may ask for."""

TOO_LARGE, TRUNCATED = "too-large", "truncated"
PROBLEMS = {
    TOO_LARGE: f"the line has more than {MAX_LINE_BYTES} bytes",
    TRUNCATED: "the line has no end",
}
"""By the reason why a line is refused."""

_SET_CAPACITY = 1031  # fcntl.F_SETPIPE_SZ, which Python 3.9 does not name
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class InputLine(NamedTuple):
    """A line without its end, numbered from 1; `reason`, one of PROBLEMS, if it can't be used."""

    number: int
    body: bytes
    reason: str = ""


class Lines:
    """Cuts blocks of bytes into lines; of one that is too long only the beginning is stored."""

    def __init__(self) -> None:
        self.number = 0
        self._rest = b""
        self._too_long = False

    def cut(self, block: bytes) -> Iterator[InputLine]:
        """The lines that end in the block."""
        *ended, rest = (self._rest + block).split(b"\n")
        for body in ended:
            yield self._line(body)
        self._rest = rest
        if len(rest) > MAX_LINE_BYTES:
            self._rest, self._too_long = rest[:BLOCK_BYTES], True

    def end(self, reason: str = "") -> Iterator[InputLine]:
        """The line without an end, if there is one, refused for this reason."""
        if self._rest:
            line = self._line(self._rest)
            yield line._replace(reason=line.reason or reason)
        self._rest = b""

    def _line(self, body: bytes) -> InputLine:
        self.number += 1
        is_too_long = self._too_long or len(body) > MAX_LINE_BYTES
        self._too_long = False
        return InputLine(self.number, body, TOO_LARGE if is_too_long else "")


class Fifo:
    """A FIFO, read by one process at a time; it is made unless it exists.

    Raises:
        FifoError: it can't be used.
    """

    def __init__(self, path: Path, mode: int, patience: PipePatience) -> None:
        self.path = path
        self._patience = patience
        is_new = False
        with _translated(path):
            with suppress(FileExistsError):
                os.mkfifo(path, mode)
                is_new = True
            # It stays open: no line is lost, and no writer fails, while the other is opened again.
            self._always_open = os.open(path, _FLAGS)
        try:
            if not stat.S_ISFIFO(os.fstat(self._always_open).st_mode):
                raise FifoError(f"{path} exists, and is not a FIFO")
            if not flock_at_once(self._always_open):
                raise FifoError(f"{path} is read by another process: two would share its lines")
            if is_new:
                os.fchmod(self._always_open, mode)  # whatever the umask is
            with suppress(OSError):  # it also works with less
                fcntl.fcntl(self._always_open, _SET_CAPACITY, CAPACITY_BYTES)
            self._reader = open(self._opened_again(), "rb", buffering=0)  # noqa: SIM115
        except BaseException:
            os.close(self._always_open)
            raise
        self._pipe = Pipe(self._reader, patience)

    def __enter__(self) -> Fifo:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        os.close(self._always_open)

    def lines(self) -> Iterator[Union[InputLine, Pause]]:
        """The lines, and pauses, until the patience ends; then what the FIFO still contains.

        Raises:
            FifoError: it was removed; everything that was read precedes the error.
        """
        lines = Lines()
        while not self._stops():
            block = self._pipe.read1(BLOCK_BYTES)
            if block:
                yield from lines.cut(block)
            elif self._pipe.paused:
                yield Pause()
            elif not self._stops():  # all writers have closed it
                yield from lines.end(TRUNCATED)
                try:
                    descriptor = self._opened_again()
                except FifoError:
                    yield Pause()
                    raise
                os.dup2(descriptor, self._reader.fileno(), inheritable=False)
                os.close(descriptor)
        size = 0
        with suppress(BlockingIOError):
            # Writers may go on for ever, but they can't have been there before the end.
            while size <= CAPACITY_BYTES and (block := os.read(self._always_open, BLOCK_BYTES)):
                size += len(block)
                yield from lines.cut(block)
        yield from lines.end(TRUNCATED)

    def _opened_again(self) -> int:
        """A descriptor that notices when the writers from now on have closed the FIFO."""
        with _translated(self.path):
            descriptor = os.open(self.path, _FLAGS)
        if os.path.sameopenfile(descriptor, self._always_open):
            return descriptor
        os.close(descriptor)
        raise FifoError(f"{self.path} was replaced by another file")

    def _stops(self) -> bool:
        readable, _, _ = select.select([self._patience.stop], [], [], 0)
        return bool(readable)


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        code = NO_PERMISSION if isinstance(error, PermissionError) else CANNOT_CREATE
        raise FifoError(f"{path}: {error.strerror or error}", code) from error
