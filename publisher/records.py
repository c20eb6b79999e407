"""What a person hands over: read tolerantly, refused where bad, each time with its place."""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from publisher.errors import NoSuchInput
from schema.classes import METRIC_OUTPUT, built_in
from schema.command import NO_INPUT, NO_PERMISSION
from schema.errors import RecordRefused
from schema.json_record import read_json
from schema.message import CLASS, MESSAGE_ID, Message, new_message_id
from schema.normalise import normalise
from schema.record import BadRecord, Reading, ReadRecord, Record, read_wlcg

STDIN = "-"

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True)
class Source:
    """Bytes, and what a person calls them."""

    name: str
    body: bytes


@dataclass(frozen=True)
class RefusedRecord:
    """A record that was not sent: where it stands, and why."""

    source: str
    line: int
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.source}:{self.line}: record refused, {self.reason}: {self.text}"


def read_sources(names: Sequence[str]) -> list[Source]:
    """All files, or standard input where none (or `-`) is named.

    Raises:
        NoSuchInput: one can't be read; better none is sent than some.
    """
    return [_read(name) for name in names or [STDIN]]


def read_records(
    source: Source, message_class: str, now: datetime
) -> Iterator[Record | RefusedRecord]:
    """The records of a source in order, each as it will be written, or why it is refused.

    A metricOutput record is checked and normalised; of other classes only the `key: value` form
    counts, since which values they take is known where they are loaded.
    """
    for item in _read_any(source.body, message_class):
        try:
            yield from _written(item, message_class, now)
        except RecordRefused as refusal:
            text = refusal.text.replace(f"line {item.line}: ", "", 1)
            yield RefusedRecord(source.name, item.line, refusal.reason, text)


def raw_message(source: Source, message_class: str, headers: Mapping[str, str]) -> Message:
    """The bytes as they are, as one message."""
    ours = {CLASS: message_class, MESSAGE_ID: new_message_id(), "persistent": "true"}
    return Message({**ours, **headers}, source.body)


def _read(name: str) -> Source:
    try:
        if name == STDIN:
            return Source("<stdin>", sys.stdin.buffer.read())
        return Source(name, Path(name).read_bytes())
    except OSError as error:
        code = NO_PERMISSION if isinstance(error, PermissionError) else NO_INPUT
        reason = (error.strerror or str(error)).lower()
        raise NoSuchInput(f"{name}: {reason}; nothing was sent", code) from error


def _read_any(body: bytes, message_class: str) -> Reading:
    if body.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"["):
        return read_json(body)
    return read_wlcg(body, message_class=built_in(message_class))


def _written(item: ReadRecord | BadRecord, message_class: str, now: datetime) -> list[Record]:
    if isinstance(item, BadRecord):
        raise RecordRefused(item.reason, item.text)
    for key in item.fields:
        if not _KEY.fullmatch(key):
            raise RecordRefused("no-key", f"{key[:60]!r} can't be a key of a record")
    if built_in(message_class) is METRIC_OUTPUT:
        return normalise(item.fields, message_class, {}, now)
    return [item.fields]
