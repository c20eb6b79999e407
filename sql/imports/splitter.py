"""Cut a long file into its records, as bytes: memory for some of them is enough.

What a record's bytes mean is the reader's business (`schema.records.text` and `json_form`); here
only the place is found where one ends and the next begins.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sam_pipeline.schema.records.classes import built_in
from sam_pipeline.schema.records.text import read_wlcg
from sam_pipeline.sql.imports.input_file import InputFile

BLOCK_BYTES = 512 * 1024
LONGEST_RECORD = 16 * 1024 * 1024
"""What has no end by then is no record; with it the memory of an import is bounded."""

Cut = Callable[[bytes], list[bytes]]
"""Consecutive slices from the beginning, one a record; the last may be incomplete."""

_SEPARATORS = re.compile(rb"(?:\xef\xbb\xbf)?[\s,\[\]]*+")
# What nearly every record of a file is, found at the speed of the regular expression.
_FLAT_OBJECT = re.compile(rb'\{(?:[^"{}\[\]]++|"(?:[^"\\\n]++|\\.)*+")*+\}')
_TOKEN = re.compile(rb'"(?:[^"\\\n]++|\\.)*+"?|[{}\[\]]|\n[ \t\r]*+(?=\{)')
_NO_OBJECT = re.compile(rb"[^\n{\]]++")


class Place(NamedTuple):
    """Between two records: the byte, line and record (from 0) of the one that follows."""

    offset: int = 0
    line: int = 0
    record: int = 0


class Piece(NamedTuple):
    """One record: its bytes, its first line (from 1), and the place behind it."""

    raw: bytes
    line: int
    end: Place


@dataclass
class Pieces:
    """The records of a file from `place` on.

    At the end `damage` says why that was not the end of the file.
    """

    file: InputFile
    class_name: str
    columns: Sequence[str]
    place: Place
    is_json: bool = False
    damage: str | None = None

    def __iter__(self) -> Iterator[Piece]:
        buffer = self.file.read(BLOCK_BYTES)
        self.is_json = is_json(buffer)
        is_array = buffer.lstrip(codecs.BOM_UTF8).lstrip().startswith(b"[")
        if self.place.offset:  # the beginning only told the format
            self.file.skip(self.place.offset - len(buffer))
            buffer = buffer[self.place.offset :]
        cut = _cut_json if self.is_json else self._cut_text
        last = b""
        for raw in self._slices(buffer, cut):
            last = raw
            if piece := self._piece(raw):
                yield piece
        if is_array and not self.damage and not last.rstrip().endswith(b"]"):
            self.damage = "the JSON array is not closed: the file is cut short"

    def _slices(self, buffer: bytes, cut: Cut) -> Iterator[bytes]:
        """Whatever follows may belong to the last record of a block: it waits for the next."""
        while True:
            *whole, rest = cut(buffer) or [b""]
            yield from whole
            if len(rest) > LONGEST_RECORD:
                self.damage = self._endless()
                return
            more = self.file.read(max(BLOCK_BYTES, len(rest)))
            if not more:
                break
            buffer = rest + more
        self.damage = self.file.damage
        if not self.damage:  # else it is the half of something
            yield rest

    def _piece(self, raw: bytes) -> Piece | None:
        """The record in a slice; None of blanks."""
        begin = _separators(raw, 0) if self.is_json else len(raw) - len(raw.lstrip())
        offset, line, record = self.place
        lines = raw.count(b"\n")
        body = raw[begin:]
        if not body:
            self.place = Place(offset + len(raw), line + lines, record)
            return None
        self.place = Place(offset + len(raw), line + lines, record + 1)
        return Piece(body, line + raw.count(b"\n", 0, begin) + 1, self.place)

    def _cut_text(self, buffer: bytes) -> list[bytes]:
        known = built_in(self.class_name)
        reading = read_wlcg(buffer, message_class=known, columns=self.columns)
        slices = [record.raw for record in reading]
        slices[-1] += buffer[sum(map(len, slices)) :]  # blanks
        return slices

    def _endless(self) -> str:
        end = "closing bracket" if self.is_json else "line EOT"
        return f"from line {self.place.line + 1} on no {end} in {LONGEST_RECORD} bytes"


def is_json(beginning: bytes) -> bool:
    return beginning.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"[")


def _cut_json(buffer: bytes) -> list[bytes]:
    """One slice an object, with what separates it from the one before.

    So an array, objects one a line and objects one behind the other are read alike. Where an
    object is broken, the next line that begins with a `{` begins the next one.
    """
    slices, begin = [], 0
    while begin < len(buffer):
        start = _separators(buffer, begin)
        flat = _FLAT_OBJECT.match(buffer, start)
        end = flat.end() if flat else _end_of_odd_item(buffer, start)
        slices.append(buffer[begin:end])
        begin = end
    return slices


def _separators(buffer: bytes, begin: int) -> int:
    """Where they end."""
    found = _SEPARATORS.match(buffer, begin)
    return found.end() if found else begin


def _end_of_odd_item(buffer: bytes, start: int) -> int:
    """Of something nested, broken, unfinished or no object at all."""
    if other := _NO_OBJECT.match(buffer, start):
        return other.end()
    depth = 0
    for token in _TOKEN.finditer(buffer, start):
        first = token[0][:1]
        if first == b"\n":
            return token.start()
        depth += (first in b"{[") - (first in b"}]")
        if depth <= 0:
            return token.end()
    return len(buffer)
