"""Splits a long file into the bytes of its records, with only one block in memory.

This module only finds the boundaries between records; `schema.records.text` and `json_form` read
the records themselves.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sam_pipeline.schema.records.classes import built_in
from sam_pipeline.schema.records.input_file import BLOCK_BYTES, InputFile
from sam_pipeline.schema.records.text import read_wlcg

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


@dataclass
class Splitter:
    """Iterates over the records of a file from `position` on, and advances it.

    An empty record is a pause of a pipe. If the records end before the file does, `damage` is the
    reason, and `damaged_line` the number of the first line that is not part of a record.
    """

    file: InputFile
    class_name: str
    columns: Sequence[str]
    position: Position = START
    is_json: bool = False
    damage: str | None = None
    damaged_line: int = 0

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
