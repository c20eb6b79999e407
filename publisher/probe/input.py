"""Records from files and standard input; a bad record is refused with its file and line."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO

from sam_pipeline.publisher.errors import NoSuchInput
from sam_pipeline.publisher.probe.values import is_key
from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.messages.message import CLASS, MESSAGE_ID, Message, new_message_id
from sam_pipeline.schema.program.command import NO_INPUT, NO_PERMISSION
from sam_pipeline.schema.records.classes import KNOWN_KEYS, METRIC_OUTPUT, built_in
from sam_pipeline.schema.records.json_form import read_json
from sam_pipeline.schema.records.normalise import normalise
from sam_pipeline.schema.records.text import BadRecord, Record, read_wlcg

STDIN = "-"
BLOCK_BYTES = 512 * 1024
"""Bytes read at a time: an input of any length needs little memory."""
MAX_LINE_BYTES = 4096
"""The first line of a record is searched for a key up to this length."""


@dataclass(frozen=True)
class InputBlock:
    """Bytes of the file `name`, from its line number `line` on."""

    name: str
    body: bytes
    line: int = 1


@dataclass(frozen=True)
class RefusedRecord:
    """A record that was not sent: its file and line, a keyword for the reason, and a message."""

    source: str
    line: int
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.source}:{self.line}: record refused, {self.reason}: {self.text}"


def read_sources(names: Sequence[str]) -> list[InputBlock]:
    """The contents of all files; without a name, or for `-`, of standard input.

    Raises:
        NoSuchInput: a file can't be read; nothing was sent yet.
    """
    blocks = []
    for name in names or [STDIN]:
        with _opened(name) as file:
            blocks.append(InputBlock(_title(name), _bytes_of(file, name)))
    return blocks


def read_blocks(names: Sequence[str]) -> Iterator[InputBlock]:
    """Like `read_sources`, but in blocks of whole records; a JSON file is a single block.

    Raises:
        NoSuchInput: a file can't be opened, before the first block; or reading it failed.
    """
    for name in names:
        if name != STDIN:
            _opened(name).close()
    for name in names or [STDIN]:
        with _opened(name) as file:
            body, line, searched = _bytes_of(file, name, BLOCK_BYTES), 1, 0
            if _is_json(body):
                body += _bytes_of(file, name)
            while more := _bytes_of(file, name, BLOCK_BYTES):
                end = _end_of_records(body, searched)
                searched = 0 if end else max(0, len(body) - MAX_LINE_BYTES)
                if end:
                    yield InputBlock(_title(name), body[:end], line)
                    line += body.count(b"\n", 0, end)
                body = body[end:] + more
            yield InputBlock(_title(name), body, line)


def read_records(
    source: InputBlock, message_class: str, now: datetime
) -> Iterator[Record | RefusedRecord]:
    """The records of a block in order: each as it will be sent, or why it is refused.

    Records of metricOutput are checked and normalised. Of other classes only the form is checked:
    the values that are allowed are known to the database.
    """
    is_json, known = _is_json(source.body), built_in(message_class)
    items = read_json(source.body) if is_json else read_wlcg(source.body, message_class=known)
    for item in items:
        try:
            if isinstance(item, BadRecord):
                raise RecordRefused(item.reason, item.text)
            for key in item.fields if is_json else ():  # read_wlcg checks its keys itself
                if not is_key(key):
                    raise RecordRefused("no-key", f"{key[:60]!r} is not a valid key")
            if known is METRIC_OUTPUT:
                yield from normalise(item.fields, message_class, {}, now)
            else:
                yield item.fields
        except RecordRefused as refusal:
            text = refusal.text.replace(f"line {item.line}: ", "", 1)
            yield RefusedRecord(source.name, source.line - 1 + item.line, refusal.reason, text)


def raw_message(source: InputBlock, message_class: str, headers: Mapping[str, str]) -> Message:
    """One message with the unchanged bytes of a file."""
    ours = {CLASS: message_class, MESSAGE_ID: new_message_id(), "persistent": "true"}
    return Message({**ours, **headers}, source.body)


def _title(name: str) -> str:
    return "<stdin>" if name == STDIN else name


def _opened(name: str) -> BinaryIO:
    try:
        return open(sys.stdin.fileno() if name == STDIN else name, "rb", closefd=name != STDIN)
    except OSError as error:
        raise _unreadable(name, error, "nothing was sent") from error


def _bytes_of(file: BinaryIO, name: str, size: int = -1) -> bytes:
    try:
        return file.read(size)
    except OSError as error:
        raise _unreadable(name, error, "the rest of it was not sent") from error


def _unreadable(name: str, error: OSError, consequence: str) -> NoSuchInput:
    code = NO_PERMISSION if isinstance(error, PermissionError) else NO_INPUT
    reason = (error.strerror or str(error)).lower()
    return NoSuchInput(f"{name}: {reason}; {consequence}", code)


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


def _is_json(body: bytes) -> bool:
    return body.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"[")
