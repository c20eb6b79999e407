"""Records from files and standard input; a bad record is refused with its file and line."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import NamedTuple, Union

from sam_pipeline.publisher.probe.values import is_key
from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.messages.message import (
    MAX_BYTES,
    MAX_RECORDS,
    Message,
    pack,
)
from sam_pipeline.schema.records.classes import KNOWN_KEYS, METRIC_OUTPUT, built_in
from sam_pipeline.schema.records.input_file import (
    BLOCK_BYTES,
    LONGEST_RECORD,
    STDIN,
    InputFile,
    PipePatience,
    Splitter,
    refuse_missing,
)
from sam_pipeline.schema.records.json_form import read_json
from sam_pipeline.schema.records.normalise import normalise
from sam_pipeline.schema.records.text import BadRecord, Record, read_wlcg

MAX_LINE_BYTES = 4096
"""The first line of a record is searched for a key up to this length."""

LARGE_BYTES = MAX_BYTES // 4
"""A larger record may not fit into a message: bytes other than UTF-8 grow when replaced."""

Change = Callable[[Record], Record]

_JSON_PLACE = r": line (\d+) column (\d+) \(char \d+\)$"


class InputBlock(NamedTuple):
    """Bytes of the file `name`, from its line number `line` on."""

    name: str
    body: bytes
    line: int = 1
    is_json: bool = False


class Pause:
    """Follows the last record that a pipe has for now: the next may take long to arrive."""


class RefusedRecord(NamedTuple):
    """A record that was not sent: its file and line, a keyword for the reason, and a message."""

    source: str
    line: int
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.source}:{self.line}: record refused, {self.reason}: {self.text}"


Found = Union[Record, RefusedRecord, Pause]


class RecordRules(NamedTuple):
    """How the fields that were read become the records that are sent."""

    message_class: str
    clock: Callable[[], datetime]
    completed: Change = lambda record: record
    """Adds configured values."""
    fit: Change = lambda record: record
    """Shortens a large record, or raises MessageRefused."""

    def records(self, fields: Record, size: int, now: datetime) -> Iterable[Record]:
        """The records of these fields, which were read from `size` bytes.

        Records of built-in classes are checked and normalised. Which values other classes allow is
        known only to the database.

        Raises:
            RecordRefused: they can never be loaded.
        """
        rows = [self.completed(fields)]
        if built_in(self.message_class):
            rows = normalise(rows[0], self.message_class, {}, now)
        return map(self.fit, rows) if size > LARGE_BYTES else rows


def read_files(
    names: Sequence[str], rules: RecordRules, patience: PipePatience | None = None
) -> Iterator[Found]:
    """The records of all files in order: each as it will be sent, or why it is refused.

    Files may be gzipped. In a damaged file, the records before the damage are read. With
    `patience`, a Pause follows the records of a pipe that should wait no longer for more.

    Raises:
        UnreadableInput: a file can't be opened, before the first record; or reading it failed.
    """
    refuse_missing(names, "nothing was sent")
    for name in names or [STDIN]:
        if patience and not os.path.isfile(name):
            yield Pause()  # the records until now
        with InputFile(name, patience=patience) as file:
            for block in read_blocks(file):
                if isinstance(block, InputBlock):
                    yield from read_records(block, rules)
                else:
                    yield block


def bursts(
    found: Iterable[Found],
    report: Callable[[RefusedRecord], object],
    message_class: str,
    headers: Mapping[str, str],
    max_records: int = MAX_RECORDS,
) -> Iterator[Iterator[Message]]:
    """The messages up to each pause; records that are refused are reported instead."""

    def accepted(items: Iterable[Found]) -> Iterator[Record]:
        for item in items:
            if isinstance(item, Pause):
                return
            if isinstance(item, RefusedRecord):
                report(item)
            else:
                yield item

    remaining = iter(found)
    for first in remaining:
        records = accepted(chain([first], remaining))
        yield pack(records, message_class, max_records, headers=headers)


def read_blocks(file: InputFile) -> Iterator[InputBlock | RefusedRecord | Pause]:
    """The file in blocks of whole records, each JSON object by itself; last, why it ended early."""
    body, line, searched = file.read(BLOCK_BYTES), 1, 0
    while file.paused and not body.strip():
        body += file.read(BLOCK_BYTES)
    if body.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"["):
        file.unread(body)
        yield from _read_objects(file)
        return
    is_empty = True
    while True:
        if file.paused:
            last_line = body[-MAX_LINE_BYTES:].rstrip().rpartition(b"\n")[2]
            end = len(body) if last_line == b"EOT" else _end_of_records(body, 0)
            if end:
                yield InputBlock(file.name, body[:end], line)
                line += body.count(b"\n", 0, end)
                body, searched, is_empty = body[end:], 0, False
            yield Pause()
        more = file.read(BLOCK_BYTES)
        if not more and not file.paused:
            break
        end = _end_of_records(body, searched)
        searched = 0 if end else max(0, len(body) - MAX_LINE_BYTES)
        if end:
            yield InputBlock(file.name, body[:end], line)
            line += body.count(b"\n", 0, end)
            is_empty = False
        body = body[end:] + more
        if len(body) > LONGEST_RECORD:
            text = f"no line EOT in {LONGEST_RECORD} bytes; the rest of the file was not read"
            yield RefusedRecord(file.name, line, "too-large", text)
            return
    if file.damage:
        whole = body.rfind(b"\nEOT\n") + len(b"\nEOT\n") if b"\nEOT\n" in body else 0
        if whole:
            yield InputBlock(file.name, body[:whole], line)
        yield _damage(file.name, line + body.count(b"\n", 0, whole), file.damage)
    elif body.strip() or is_empty:
        yield InputBlock(file.name, body, line)


def read_records(source: InputBlock, rules: RecordRules) -> Iterator[Record | RefusedRecord]:
    """The records of a block in order: each as it will be sent, or why it is refused."""
    known, now = built_in(rules.message_class), rules.clock()
    items = (
        read_json(source.body) if source.is_json else read_wlcg(source.body, message_class=known)
    )
    for item in items:
        try:
            if isinstance(item, BadRecord):
                raise RecordRefused(item.reason, item.text)
            for key in item.fields if source.is_json else ():  # read_wlcg checks its keys itself
                if not is_key(key):
                    raise RecordRefused("no-key", f"{key[:60]!r} is not a valid key")
            yield from rules.records(item.fields, len(item.raw), now)
        except RecordRefused as refusal:
            yield _refused(source, item.line, refusal)


def _read_objects(file: InputFile) -> Iterator[InputBlock | RefusedRecord | Pause]:
    """The objects of a JSON file: of an array, one in each line, or one after the other."""
    splitter = Splitter(file, METRIC_OUTPUT.name, METRIC_OUTPUT.keys)
    for raw, line, _ in splitter:
        yield InputBlock(file.name, raw, line, is_json=True) if raw else Pause()
    if splitter.damage:
        yield _damage(file.name, splitter.damaged_line, splitter.damage)
    elif not splitter.position.record:
        yield RefusedRecord(file.name, 1, "empty", "an array without a record")


def _damage(name: str, line: int, damage: str) -> RefusedRecord:
    return RefusedRecord(name, line, "truncated", f"{damage}; the records before it were read")


def _refused(source: InputBlock, line: int, refusal: RecordRefused) -> RefusedRecord:
    """The refusal of a record, with positions in the file instead of the block."""
    text = refusal.text.replace(f"line {line}: ", "", 1)
    if source.is_json:
        text = text.removeprefix("item 1 ")
        if place := re.search(_JSON_PLACE, text):
            at = source.line - 1 + int(place[1])
            text = f"{text[: place.start()]} in line {at}, column {place[2]}"
    return RefusedRecord(source.name, source.line - 1 + line, refusal.reason, text)


def _end_of_records(body: bytes, begin: int) -> int:
    """The offset after the last record that is certainly followed by another; 0 if there is none.

    An EOT may also be a line of a text, so a known key must follow it.
    """
    end = len(body)
    while (end := body.rfind(b"\nEOT", begin, end)) >= 0:
        line, _, after = body[end + 1 : end + 1 + MAX_LINE_BYTES].partition(b"\n")
        key, colon, _ = after.lstrip().partition(b":")
        if line.rstrip() == b"EOT" and colon and KNOWN_KEYS[key.decode("latin-1")]:
            return end + 1 + len(line) + 1
    return 0
