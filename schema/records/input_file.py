"""Reads a file of records, standard input or a pipe, and splits it into the bytes of its records.

Files may be gzipped. Only one block is in memory; `text` and `json_form` read the records.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import stat
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO, NamedTuple, Optional

from sam_pipeline.schema.errors import UnreadableInput
from sam_pipeline.schema.records.classes import built_in
from sam_pipeline.schema.records.text import read_wlcg


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


STDIN = "-"
GZIP_MAGIC = b"\x1f\x8b"
BLOCK_BYTES = 512 * 1024
"""Bytes read at a time: an input of any length needs little memory."""


class InputFile:
    """Reads a file from start to end; `damage` is the reason if it stopped before the end.

    A gzip may have several members. It is recognised by its first bytes, also from a pipe. With
    `patience`, `read` returns the bytes before a pause of a pipe; then `paused` is true.

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
        try:
            head = self._file.read(len(GZIP_MAGIC))
        except OSError as error:
            raise UnreadableInput(self.name, error, "the rest of it was not read") from error
        self._next = _Rejoined(head, self._file)
        self._bytes: BinaryIO | _Rejoined = self._next
        self._damages: tuple[type[Exception], ...] = ()
        if decompress and self._next.head == GZIP_MAGIC:
            import gzip  # 1.2 ms, and most files are not compressed

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
        is_fifo = False
        with suppress(OSError):
            is_fifo = stat.S_ISFIFO(os.stat(name).st_mode)
        if name != STDIN and not is_fifo:  # closing a pipe would break its writer
            _opened(name, consequence).close()


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


LONGEST_RECORD = 16 * 1024 * 1024
"""The limit on the bytes of a record, which bounds the memory of a reader."""

_SEPARATORS = re.compile(rb"(?:\xef\xbb\xbf)?[\s,\[\]]*")
# Nearly all records are objects without nested ones, which one regular expression finds fast. In
# both of these, a character can match in one way only, so that no text takes quadratic time.
_STRING = rb'"[^"\\\n]*(?:\\.[^"\\\n]*)*'
_FLAT_OBJECT = re.compile(rb'\{[^"{}\[\]]*(?:' + _STRING + rb'"[^"{}\[\]]*)*\}')
_TOKEN = re.compile(_STRING + rb'"?|[{}\[\]]|\n[ \t\r]*(?=\{)')
_NO_OBJECT = re.compile(rb"[^\n{\]]+")


class Position(NamedTuple):
    """A boundary between two records: byte offset, and number of lines and records before it."""

    offset: int = 0
    line: int = 0
    record: int = 0


START = Position()


class RawRecord(NamedTuple):
    """The bytes of a record, the number of its first line (from 1), and the position after it."""

    raw: bytes
    line: int
    end: Position


class Splitter:
    """Iterates over the records of a file from `position` on, and advances it.

    An empty record is a pause of a pipe. If the records end before the file does, `damage` is the
    reason, and `damaged_line` the number of the first line that is not part of a record.
    """

    def __init__(
        self,
        file: InputFile,
        class_name: str,
        columns: Sequence[str],
        position: Position = START,
    ) -> None:
        self.file = file
        self.class_name = class_name
        self.columns = columns
        self.position = position
        self.is_json = False
        self.damage: str | None = None
        self.damaged_line = 0

    def __iter__(self) -> Iterator[RawRecord]:
        buffer = self.file.read(BLOCK_BYTES)
        first = buffer.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
        self.is_json = first in (b"{", b"[")
        if self.position.offset:  # the first block was only read to detect the format
            self.file.skip(self.position.offset - len(buffer))
            buffer = buffer[self.position.offset :]
        raw = b""
        for raw in self._slices(buffer):
            begin = _separators_end(raw, 0) if self.is_json else len(raw) - len(raw.lstrip())
            body = raw[begin:]
            offset, line, record = self.position
            end_line = line + raw.count(b"\n")
            self.position = Position(offset + len(raw), end_line, record + bool(body))
            if body or (self.file.paused and not raw):
                yield RawRecord(body, line + raw.count(b"\n", 0, begin) + 1, self.position)
        if first == b"[" and not self.damage and not raw.rstrip().endswith(b"]"):
            self.damage = "the JSON array is not closed: the file is truncated"
            self.damaged_line = self.position.line + 1

    def _slices(self, buffer: bytes) -> Iterator[bytes]:
        """Slices of one record each; the last slice of a block may continue in the next block."""
        while True:
            *complete, rest = self._cut(buffer) or [b""]
            yield from complete
            if len(rest) > LONGEST_RECORD:
                end = "closing bracket" if self.is_json else "line EOT"
                self.damaged_line = self.position.line + 1
                self.damage = f"no {end} in {LONGEST_RECORD} bytes from line {self.damaged_line} on"
                return
            if self.file.paused:
                if self.is_json and _FLAT_OBJECT.fullmatch(rest.rstrip(), _separators_end(rest, 0)):
                    yield rest
                    rest = b""
                yield b""
            more = self.file.read(max(BLOCK_BYTES, len(rest)))
            if not more and not self.file.paused:
                break
            buffer = rest + more
        self.damage = self.file.damage
        if not self.damage:
            yield rest
        else:  # the last record is incomplete
            blanks = rest[: _separators_end(rest, 0)]
            self.damaged_line = self.position.line + 1 + blanks.count(b"\n")

    def _cut(self, buffer: bytes) -> list[bytes]:
        """The buffer in slices of one record each, preceded by its separators.

        JSON may be an array, one object per line, or a sequence of objects. An invalid object ends
        before the next line that begins with `{`.
        """
        if not self.is_json:
            known = built_in(self.class_name)
            records = read_wlcg(buffer, message_class=known, columns=self.columns)
            slices = [record.raw for record in records]
            slices[-1] += buffer[sum(map(len, slices)) :]  # trailing blanks
            return slices
        slices, begin = [], 0
        while begin < len(buffer):
            start = _separators_end(buffer, begin)
            if match := _FLAT_OBJECT.match(buffer, start) or _NO_OBJECT.match(buffer, start):
                end = match.end()
            else:  # nested, invalid or incomplete
                depth, end = 0, len(buffer)
                for token in _TOKEN.finditer(buffer, start):
                    first = token[0][:1]
                    depth += (first in b"{[") - (first in b"}]")
                    if first == b"\n" or depth <= 0:
                        end = token.start() if first == b"\n" else token.end()
                        break
            slices.append(buffer[begin:end])
            begin = end
        return slices


def _separators_end(buffer: bytes, begin: int) -> int:
    match = _SEPARATORS.match(buffer, begin)
    return match.end() if match else begin
