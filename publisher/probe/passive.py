"""Passive check results as records: lines for Nagios, and documents for NRDP.

Nagios writes its lines into a named pipe (FIFO), whose writers come and go. Several lines, or a
line of at most 4096 bytes, that are written at once stay together; the lines of writers that write
more may mix.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import select
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Callable, NamedTuple, Union

from sam_pipeline.publisher.errors import FifoError
from sam_pipeline.publisher.probe.input import Found, Pause, RecordRules, RefusedRecord
from sam_pipeline.schema.errors import CANNOT_CREATE, NO_PERMISSION, RecordRefused
from sam_pipeline.schema.records.input_file import BLOCK_BYTES, InputFile, Pipe, PipePatience
from sam_pipeline.schema.records.passive import (
    CheckResult,
    Naming,
    UnreadableResults,
    record_of_result,
    result_of_command,
    results_in_json,
    results_in_xml,
)
from sam_pipeline.schema.records.text import Record
from sam_pipeline.schema.spool.disk import flock_at_once

MAX_LINE_BYTES = 1024 * 1024
FIFO_BYTES = 64 * 1024
"""Bytes of a FIFO read at a time."""
CAPACITY_BYTES = 1024 * 1024
"""How much the kernel stores while nobody reads; the most that an ordinary account may set."""

TOO_LARGE, TRUNCATED = "too-large", "truncated"
PROBLEMS = {
    TOO_LARGE: f"the line has more than {MAX_LINE_BYTES} bytes",
    TRUNCATED: "the line has no end",
}
"""The message for each reason to refuse a line."""

_SET_CAPACITY = 1031  # fcntl.F_SETPIPE_SZ, which Python 3.9 does not name
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class InputLine(NamedTuple):
    """A line without its end, numbered from 1; `reason`, one of PROBLEMS, if it can't be used."""

    number: int
    body: bytes
    reason: str = ""


class Lines:
    """Cuts blocks of bytes into lines, and stores only the beginning of one that is too long."""

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
            self._rest, self._too_long = rest[:FIFO_BYTES], True

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
            block = self._pipe.read1(FIFO_BYTES)
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
            # Writers may go on forever, but they can't have been there before the end.
            while size <= CAPACITY_BYTES and (block := os.read(self._always_open, FIFO_BYTES)):
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


MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
"""The limit on a document of NRDP, whose results are in memory at once."""


class PassiveResults(NamedTuple):
    """How check results become records."""

    naming: Naming
    rules: RecordRules

    def of_lines(self, name: str, lines: Iterable[Union[InputLine, Pause]]) -> Iterator[Found]:
        """The records of external commands of Nagios; empty lines are ignored."""
        for line in lines:
            if isinstance(line, Pause):
                yield line
            elif line.reason:
                text = f"{PROBLEMS[line.reason]}: {_text(line.body)[:80]!r}"
                yield RefusedRecord(name, line.number, line.reason, text)
            elif line.body.strip():
                try:
                    yield from self._records(result_of_command(_text(line.body)))
                except RecordRefused as refusal:
                    yield RefusedRecord(name, line.number, refusal.reason, refusal.text)

    def of_input(self, file: InputFile, is_cut: Callable[[], bool]) -> Iterator[Found]:
        """The records of a file or pipe in any form; its first character identifies it.

        At the end, `is_cut` returns whether there may be more that was not read.
        """
        block = file.read(BLOCK_BYTES)
        while file.paused and not block.strip():
            block += file.read(BLOCK_BYTES)
        first = block.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
        file.unread(block)
        if first in (b"<", b"{"):
            yield from self._of_document(file, is_json=first == b"{")
        else:
            yield from self.of_lines(file.name, _lines(file, is_cut))

    def _of_document(self, file: InputFile, is_json: bool) -> Iterator[Found]:
        data = b""
        while len(data) <= MAX_DOCUMENT_BYTES and (
            (block := file.read(BLOCK_BYTES)) or file.paused
        ):
            data += block
        if file.damage or len(data) > MAX_DOCUMENT_BYTES:
            reason = TRUNCATED if file.damage else TOO_LARGE
            text = file.damage or f"the document has more than {MAX_DOCUMENT_BYTES} bytes"
            yield RefusedRecord(file.name, 1, reason, f"{text}; nothing of it was sent")
            return
        try:
            results = results_in_json(_text(data)) if is_json else results_in_xml(data)
        except UnreadableResults as problem:
            reason, text = "not-json" if is_json else "not-xml", f"{problem}; nothing was sent"
            yield RefusedRecord(file.name, problem.line or 1, reason, text)
            return
        if not results:
            yield RefusedRecord(file.name, 1, "empty", "the document has no check result")
        for number, result in enumerate(results, 1):
            try:
                yield from self._records(result)
            except RecordRefused as refusal:
                text = f"check result {number}: {refusal.text}"
                yield RefusedRecord(file.name, 1, refusal.reason, text)

    def _records(self, result: CheckResult) -> Iterable[Record]:
        now = self.rules.clock()
        record = record_of_result(result, self.naming, now)
        return self.rules.records(record, sum(map(len, record.values())), now)


def _lines(file: InputFile, is_cut: Callable[[], bool]) -> Iterator[Union[InputLine, Pause]]:
    lines = Lines()
    while (block := file.read(BLOCK_BYTES)) or file.paused:
        yield from lines.cut(block)
        if file.paused:
            yield Pause()
    if file.damage:
        yield InputLine(lines.number + 1, file.damage.encode(), TRUNCATED)
    else:
        yield from lines.end(TRUNCATED if is_cut() else "")


def _text(body: bytes) -> str:
    """The text; bytes that are not UTF-8, and NUL bytes, are replaced by U+FFFD."""
    return body.decode("utf-8", "replace").replace("\0", "\ufffd").removeprefix("\ufeff")
