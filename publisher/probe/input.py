"""What a person hands over: read tolerantly, refused where bad, each time with its place."""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO

from sam_pipeline.publisher.errors import NoSuchInput
from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.messages.message import CLASS, MESSAGE_ID, Message, new_message_id
from sam_pipeline.schema.program.command import NO_INPUT, NO_PERMISSION
from sam_pipeline.schema.records.classes import KNOWN_KEYS, METRIC_OUTPUT, built_in
from sam_pipeline.schema.records.json_form import read_json
from sam_pipeline.schema.records.normalise import normalise
from sam_pipeline.schema.records.text import BadRecord, Reading, ReadRecord, Record, read_wlcg

STDIN = "-"
BLOCK_BYTES = 512 * 1024
"""What is read at a time: with its records, an input of any length needs no more memory."""
MAX_LINE_BYTES = 4096
"""Of the line where a record begins: so far it is looked for a key."""

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True)
class InputBlock:
    """Bytes, what a person calls the file they are of, and the line there that is their first."""

    name: str
    body: bytes
    line: int = 1


@dataclass(frozen=True)
class RefusedRecord:
    """A record that was not sent: where it stands, and why."""

    source: str
    line: int
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.source}:{self.line}: record refused, {self.reason}: {self.text}"


def read_sources(names: Sequence[str]) -> list[InputBlock]:
    """All files, or standard input where none (or `-`) is named.

    Raises:
        NoSuchInput: one can't be read; better none is sent than some.
    """
    return [_read(name) for name in names or [STDIN]]


def read_blocks(names: Sequence[str]) -> Iterator[InputBlock]:
    """The same, block after block of whole records; JSON comes as one.

    Raises:
        NoSuchInput: a file can't be read; nothing was given yet, unless it broke while read.
    """
    for name in names:
        if name != STDIN:
            _opened(name).close()
    for name in names or [STDIN]:
        with _opened(name) as file:
            yield from _blocks("<stdin>" if name == STDIN else name, file)


def read_records(
    source: InputBlock, message_class: str, now: datetime
) -> Iterator[Record | RefusedRecord]:
    """The records of a source in order, each as it will be written, or why it is refused.

    A metricOutput record is checked and normalised; of other classes only the `key: value` form
    counts, since which values they take is known where they are loaded.
    """
    form = _written_json if _is_json(source.body) else _written
    for item in _read_any(source.body, message_class):
        try:
            yield from form(item, message_class, now)
        except RecordRefused as refusal:
            text = refusal.text.replace(f"line {item.line}: ", "", 1)
            yield RefusedRecord(source.name, source.line - 1 + item.line, refusal.reason, text)


def raw_message(source: InputBlock, message_class: str, headers: Mapping[str, str]) -> Message:
    """The bytes as they are, as one message."""
    ours = {CLASS: message_class, MESSAGE_ID: new_message_id(), "persistent": "true"}
    return Message({**ours, **headers}, source.body)


def _read(name: str) -> InputBlock:
    with _opened(name) as file:
        return InputBlock("<stdin>" if name == STDIN else name, _bytes_of(file, name))


def _opened(name: str) -> BinaryIO:
    try:
        return open(sys.stdin.fileno() if name == STDIN else name, "rb", closefd=name != STDIN)
    except OSError as error:
        raise _unreadable(name, error, "nothing was sent") from error


def _bytes_of(file: BinaryIO, name: str, size: int = -1) -> bytes:
    try:
        return file.read(size)
    except OSError as error:
        raise _unreadable(name, error, "what stands there was not sent") from error


def _unreadable(name: str, error: OSError, so_far: str) -> NoSuchInput:
    code = NO_PERMISSION if isinstance(error, PermissionError) else NO_INPUT
    reason = (error.strerror or str(error)).lower()
    return NoSuchInput(f"{name}: {reason}; {so_far}", code)


def _blocks(name: str, file: BinaryIO) -> Iterator[InputBlock]:
    body, line = _bytes_of(file, name, BLOCK_BYTES), 1
    if _is_json(body):
        body += _bytes_of(file, name)
    searched = 0
    while True:
        more = _bytes_of(file, name, BLOCK_BYTES)
        if not more:
            yield InputBlock(name, body, line)
            return
        end = _end_of_records(body, searched)
        searched = 0 if end else max(0, len(body) - MAX_LINE_BYTES)
        if end:
            yield InputBlock(name, body[:end], line)
            line += body.count(b"\n", 0, end)
        body = body[end:] + more


def _end_of_records(body: bytes, begin: int) -> int:
    """Where the last record ends that another surely follows; 0 if that is nowhere."""
    at = len(body)
    while True:
        at = body.rfind(b"\nEOT", begin, at)
        if at < 0:
            return 0
        line, _, after = body[at + 1 : at + 1 + MAX_LINE_BYTES].partition(b"\n")
        key, colon, _ = after.lstrip().partition(b":")
        if line.rstrip() == b"EOT" and colon and KNOWN_KEYS[key.decode("latin-1")]:
            return at + 1 + len(line) + 1


def _is_json(body: bytes) -> bool:
    return body.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"[")


def _read_any(body: bytes, message_class: str) -> Reading:
    if _is_json(body):
        return read_json(body)
    return read_wlcg(body, message_class=built_in(message_class))


def _written_json(item: ReadRecord | BadRecord, message_class: str, now: datetime) -> list[Record]:
    """Keys of JSON may be any text; those of the other form have been looked at."""
    for key in item.fields if isinstance(item, ReadRecord) else ():
        if not _KEY.fullmatch(key):
            raise RecordRefused("no-key", f"{key[:60]!r} can't be a key of a record")
    return _written(item, message_class, now)


def _written(item: ReadRecord | BadRecord, message_class: str, now: datetime) -> list[Record]:
    if isinstance(item, BadRecord):
        raise RecordRefused(item.reason, item.text)
    if built_in(message_class) is METRIC_OUTPUT:
        return normalise(item.fields, message_class, {}, now)
    return [item.fields]
