"""The WLCG record text: a strict writer and a tolerant reader.

Reading splits a body into records and a record into keys; what the values mean is decided in
`normalise`. The grammar and what is tolerated: docs/record.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, Union

from sam_pipeline.schema.errors import MessageRefused
from sam_pipeline.schema.records.classes import (
    DETAILS,
    KNOWN_KEYS,
    METRIC_OUTPUT,
    MessageClass,
    Names,
)

Record = dict[str, str]

NO_RENAMES: Mapping[str, str] = {}

END = "EOT"
SUMMARY = "summaryData"
SUMMARY_LENGTH = 255

WRITE_ORDER = (
    "serviceURI",
    "hostName",
    "serviceFlavour",
    "siteName",
    "metricStatus",
    "metricName",
    SUMMARY,
    "gatheredAt",
    "timestamp",
)
"""The order of the known writers; other keys follow, details last."""

_END = END.encode()
_END_LINE = _END + b"\n"
_BOM = "\ufeff"
BLANKS = f" \t\r\xa0{_BOM}"
"""Characters that may surround a value and are not part of it."""

_SPELLING = Names(METRIC_OUTPUT.keys)
_MANY_LINES = frozenset({SUMMARY, DETAILS})
_REPLACED = ("invalid UTF-8 replaced",)


class ReadRecord(NamedTuple):
    """One record as read: keys in our spelling or in the writer's, values as text."""

    fields: Record
    raw: bytes
    line: int = 1
    notes: tuple[str, ...] = ()


class BadRecord(NamedTuple):
    """A record that can't be read: `reason` is a short word, `text` a sentence for people."""

    reason: str
    text: str
    raw: bytes
    line: int = 1


Reading = list[Union[ReadRecord, BadRecord]]


def read_wlcg(
    body: bytes,
    *,
    message_class: MessageClass | None = None,
    columns: Iterable[str] = (),
    record_count: int | None = None,
    renames: Mapping[str, str] = NO_RENAMES,
    max_records: int = sys.maxsize,
) -> Reading:
    """The records of a body, in order; a bad one does not affect its neighbours.

    `columns` are the keys of a site's own class; they and the built-in keys decide whether an
    `EOT` line inside details ends the record. `record_count` is the header of that name: if it
    is right, a missing last `EOT` is forgiven. `renames` maps foreign keys in lower case to ours.

    Raises:
        MessageRefused: more than `max_records`.
    """
    spelling = _spelling(tuple(renames.items())) if renames else _SPELLING
    keys = (*columns, *renames) if renames else tuple(columns)
    chunks = _chunks(body, keys, spelling, max_records)
    required = message_class.required if message_class else ()
    complete = record_count == len(chunks)
    reading: Reading = []
    line = 1
    for text, end in chunks:
        reading.append(_read(text, end, line, complete, required, spelling))
        line += text.count(b"\n") + 1
    if all(isinstance(record, BadRecord) and record.reason == "empty" for record in reading):
        return [BadRecord("empty", "the body holds no record", body)]
    return reading


def write_wlcg(record: Mapping[str, str]) -> str:
    """The record as text, ended by `EOT`; empty values are left out.

    A summary of several lines or above 255 characters is cut to one line; the whole of it then
    heads the details. A details line that would end the record gets one leading blank.
    """
    values: Record = {}
    for name, value in record.items():
        key = _SPELLING[name] or name
        if "\n" in value and key not in _MANY_LINES:
            value = " ".join(text_lines(value))
        value = value.strip(BLANKS)
        if value:
            values[key] = value
    summary = values.get(SUMMARY, "")
    if len(summary) > SUMMARY_LENGTH or "\n" in summary:
        whole = values.pop(SUMMARY).strip(f"{BLANKS}\n")
        short = whole.split("\n", 1)[0][:SUMMARY_LENGTH].strip(BLANKS)
        if short:
            values[SUMMARY] = short
        if short != whole:
            values[DETAILS] = f"{whole}\n{values[DETAILS]}" if DETAILS in values else whole
    details = values.pop(DETAILS, "")
    lines = [f"{key}: {values.pop(key)}" for key in WRITE_ORDER if key in values]
    lines += [f"{key}: {value}" for key, value in values.items()]
    if details:
        if END in details or "\r" in details or _BOM in details:
            details = "\n".join(
                f" {line}" if line.rstrip() == END else line for line in text_lines(details)
            )
        lines.append(f"{DETAILS}: {details}")
    lines.append(f"{END}\n")
    return "\n".join(lines)


def too_many(max_records: int) -> MessageRefused:
    return MessageRefused("too-many-records", f"above max_records = {max_records} in one message")


def text_lines(text: str) -> list[str]:
    """The lines, without a byte order mark before and carriage returns after them."""
    lines = text.split("\n")
    if "\r" in text or _BOM in text:
        lines = [line.rstrip("\r").lstrip(_BOM) for line in lines]
    return lines


class Malformed(Exception):
    """A record that can't be read; its reader makes a BadRecord of it."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def _chunks(
    body: bytes, columns: tuple[str, ...], spelling: Names, max_records: int
) -> list[tuple[bytes, bytes]]:
    """The text of each record and its `EOT` line; inside details not every such line ends it."""
    chunks = []
    begin = looked_at = end = 0
    in_details = False
    while (at := body.find(_END, end)) >= 0:
        start = body.rfind(b"\n", end, at) + 1 or end
        end = body.find(b"\n", at) + 1 or len(body)
        line = body[start:end]
        if line != _END_LINE and _lines(line)[0].rstrip() != END:
            continue
        if not record_starts(body, end, columns):
            keys = map(_key, _lines(body[looked_at:start]))
            in_details = in_details or any(spelling[key] == DETAILS for key in keys)
            looked_at = start
            if in_details:
                continue
        chunks.append((body[begin:start], body[start:end]))
        if len(chunks) > max_records:  # before more of them take memory
            raise too_many(max_records)
        begin = looked_at = end
        in_details = False
    if begin < len(body) and any(map(str.strip, _lines(body[begin:]))):
        chunks.append((body[begin:], b""))
    if len(chunks) > max_records:
        raise too_many(max_records)
    return chunks


def record_starts(body: bytes, at: int, columns: tuple[str, ...]) -> bool:
    """Whether a record, or nothing at all, follows at this offset."""
    while at < len(body):
        end = body.find(b"\n", at) + 1 or len(body)
        line = _lines(body[at:end])[0]
        if line.strip():
            key = _key(line)
            return bool(KNOWN_KEYS[key] or _names(columns)[key])
        at = end
    return True


@lru_cache(maxsize=100)
def _names(columns: tuple[str, ...]) -> Names:
    return Names(columns)


@lru_cache(maxsize=100)
def _spelling(renames: tuple[tuple[str, str], ...]) -> Names:
    """Our keys by their names in a text with foreign keys."""
    spelling = Names([*METRIC_OUTPUT.keys, *(ours for _, ours in renames)])
    for foreign, ours in renames:
        # In the spelling of the built-in keys, by which the reader looks up details.
        spelling[foreign] = _SPELLING[ours] or ours
    return spelling


def _key(line: str) -> str:
    """The key of a `key: value` line; of any other line ''."""
    key, colon, _ = line.partition(":")
    key = key.strip()
    return key if colon and key.isidentifier() and key.isascii() else ""


def _lines(text: bytes) -> list[str]:
    return text_lines(text.decode("utf-8", "replace"))


def _read(
    text: bytes, end: bytes, line: int, complete: bool, required: tuple[str, ...], spelling: Names
) -> ReadRecord | BadRecord:
    lines = _lines(text.removesuffix(b"\n"))
    if not lines[0].strip():
        filled = (number for number, content in enumerate(lines) if content.strip())
        line += next(filled, text.count(b"\n"))
    try:
        fields = _fields(lines, spelling)
        for key, value in fields.items() if b"\0" in text else ():
            if "\0" in value:
                raise Malformed("nul-byte", f"the value of {key[:60]} holds a NUL byte")
        if not (end or complete or _is_whole(fields, text, required)):
            raise Malformed("truncated", f"no {END} line ends the record")
    except Malformed as problem:
        return BadRecord(problem.reason, f"line {line}: {problem}", text + end, line)
    replaced = not text.isascii() and any("\ufffd" in value for value in fields.values())
    return ReadRecord(fields, text + end, line, _REPLACED if replaced else ())


def _is_whole(fields: Record, text: bytes, required: tuple[str, ...]) -> bool:
    """Whether a last record without `EOT` is complete all the same."""
    present = {key.lower() for key, value in fields.items() if value}
    if not required or fields.get(DETAILS) or not text.endswith(b"\n"):
        return False
    if "serviceuri" in present:
        present.add("hostname")
    if "servicetype" in present:
        present.add("serviceflavour")
    return present.issuperset(key.lower() for key in required)


def _fields(lines: list[str], spelling: Names) -> Record:
    fields: Record = {}
    unknown: dict[str, str] = {}
    rest = iter(lines)
    for line in rest:
        name, colon, value = line.partition(":")
        key = spelling.get(name)
        if not key or not colon:  # not as our writer writes it
            if not line.strip():
                continue
            name = _key(line)
            if not name:
                raise Malformed("no-key", f"{line[:60]!r} is not a line `key: value`")
            key = spelling[name] or unknown.setdefault(name.lower(), name)
        if key in fields:
            raise Malformed("duplicate-key", f"the key {name[:60]} appears twice")
        if key == DETAILS:
            value = "\n".join([value, *rest])
        fields[key] = value.strip(BLANKS)
    if not fields:
        raise Malformed("empty", "a record without a key")
    return fields
