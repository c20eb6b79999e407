"""The WLCG record text: a strict writer and a tolerant reader.

Reading splits a body into records and a record into keys; what the values mean is decided in
`normalise`. The grammar and what is tolerated: docs/record.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Union

from schema.classes import DETAILS, KNOWN_KEYS, METRIC_OUTPUT, MessageClass

Record = dict[str, str]

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

_RAW_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_SPELLING = {key.lower(): key for key in METRIC_OUTPUT.keys}
_BOM = "\ufeff"
_REPLACED = ("invalid UTF-8 replaced",)


@dataclass(frozen=True)
class ReadRecord:
    """One record as it was read: keys as spelled by the writer, values as text."""

    fields: Record
    raw: bytes
    line: int = 1
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class BadRecord:
    """A record that is none: `reason` is a short word, `text` the sentence, `line` its first."""

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
) -> Reading:
    """The records of a body, in order; a bad one does not take its neighbours along.

    `columns` are the keys of a site's own class; with the built-in keys they tell whether an
    `EOT` line inside details ends the record. `record_count` is the header of that name: if it
    is met, a missing last `EOT` is forgiven.
    """
    known = KNOWN_KEYS | {column.lower() for column in columns}
    chunks = list(_split(body, known))
    if not chunks or not any(chunk.lines for chunk in chunks):
        return [BadRecord("empty", "the body holds no record", body)]
    required = message_class.required if message_class else None
    complete = record_count == len(chunks)
    return [_read_chunk(chunk, complete, required) for chunk in chunks]


def write_wlcg(record: Mapping[str, str]) -> str:
    """The record as text, ended by `EOT`; empty values are left out.

    A summary of several lines or above 255 characters is cut to one line; the whole of it then
    heads the details. A details line that would end the record gets one leading blank.
    """
    values = _with_short_summary({key: value for key, value in record.items() if value != ""})
    first = [key for key in WRITE_ORDER if key in values]
    rest = [key for key in values if key not in first and key != DETAILS]
    lines = [f"{key}: {_one_line(values[key])}" for key in first + rest]
    if DETAILS in values:
        lines.append(f"{DETAILS}: {_safe_details(values[DETAILS])}")
    return "\n".join([*lines, END, ""])


@dataclass(frozen=True)
class _Chunk:
    """The lines of one record without its `EOT`, and the bytes it was read from."""

    line: int
    lines: list[str]
    raw: bytes
    ended: bool


class _Malformed(Exception):
    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def _split(body: bytes, known: Set[str]) -> Iterator[_Chunk]:
    """Cut at `EOT` lines; inside details only where a record or the text's end follows."""
    raw_lines = _RAW_LINE.findall(body)
    lines = [_text(raw) for raw in raw_lines]
    first, begin, in_details = None, 0, False
    for at, line in enumerate(lines):
        if line.startswith(END) and line.rstrip() == END:
            if in_details and not _record_starts(lines, at + 1, known):
                continue
            start = at if first is None else first
            yield _Chunk(start + 1, lines[start:at], b"".join(raw_lines[begin : at + 1]), True)
            first, begin, in_details = None, at + 1, False
        elif not in_details and line and not line.isspace():
            first = at if first is None else first
            in_details = _pair(line)[0].lower() == DETAILS.lower()
    if first is not None:
        yield _Chunk(first + 1, lines[first:], b"".join(raw_lines[begin:]), False)


def _text(raw: bytes) -> str:
    """The line without its end and a byte order mark; what is not UTF-8 shows as U+FFFD."""
    return raw.rstrip(b"\n").removesuffix(b"\r").decode("utf-8", "replace").removeprefix(_BOM)


def _record_starts(lines: list[str], at: int, known: Set[str]) -> bool:
    following = next((line for line in lines[at:] if line.strip()), None)
    return following is None or _pair(following)[0].lower() in known


def _pair(line: str) -> tuple[str, str]:
    """Key and value; a line that is no `key: value` has the key ''."""
    key, colon, value = line.partition(":")
    key = key.strip()
    return (key, value.strip(" \t")) if colon and key.isidentifier() and key.isascii() else ("", "")


def _read_chunk(
    chunk: _Chunk, complete: bool, required: tuple[str, ...] | None
) -> ReadRecord | BadRecord:
    try:
        fields = _fields(chunk.lines)
        if not (chunk.ended or complete or _is_whole(fields, chunk.raw, required)):
            raise _Malformed("truncated", f"no {END} line ends the record")
    except _Malformed as problem:
        text = f"line {chunk.line}: {problem}"
        return BadRecord(problem.reason, text, chunk.raw, chunk.line)
    replaced = any("\ufffd" in value for value in fields.values())
    return ReadRecord(fields, chunk.raw, chunk.line, _REPLACED if replaced else ())


def _is_whole(fields: Record, raw: bytes, required: tuple[str, ...] | None) -> bool:
    """Whether a last record without `EOT` still shows that nothing of it is lost."""
    present = {key.lower() for key, value in fields.items() if value}
    if required is None or DETAILS.lower() in present or not raw.endswith(b"\n"):
        return False
    if "serviceuri" in present:
        present.add("hostname")
    if "servicetype" in present:
        present.add("serviceflavour")
    return present.issuperset(key.lower() for key in required)


def _fields(lines: list[str]) -> Record:
    fields: Record = {}
    seen = set()
    for at, line in enumerate(lines):
        if not line or line.isspace():
            continue
        key, value = _pair(line)
        name = key.lower()
        if name in seen:
            raise _Malformed("duplicate-key", f"the key {key} stands twice")
        seen.add(name)
        if not name:
            raise _Malformed("no-key", f"{line[:60]!r} is no `key: value`")
        key = _SPELLING.get(name, key)
        if key == DETAILS:
            value = "\n".join([value, *lines[at + 1 :]])
        if "\0" in value:
            raise _Malformed("nul-byte", f"the value of {key} holds a NUL byte")
        fields[key] = value
        if key == DETAILS:
            break
    if not fields:
        raise _Malformed("empty", "a record without a key")
    return fields


def _one_line(value: str) -> str:
    return " ".join(value.split("\n")).strip()


def _with_short_summary(values: Record) -> Record:
    summary = values.get(SUMMARY, "")
    if len(summary) <= SUMMARY_LENGTH and "\n" not in summary:
        return values
    details = [summary, values[DETAILS]] if DETAILS in values else [summary]
    short = summary.split("\n", 1)[0][:SUMMARY_LENGTH]
    return {**values, SUMMARY: short, DETAILS: "\n".join(details)}


def _safe_details(details: str) -> str:
    return "\n".join(f" {line}" if line.rstrip() == END else line for line in details.split("\n"))
