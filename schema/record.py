"""The WLCG record text: a strict writer and a tolerant reader.

Reading splits a body into records and a record into keys; what the values mean is decided in
`normalise`. The grammar and what is tolerated: docs/record.md.
"""

from __future__ import annotations

import codecs
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

_LINE = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)[ \t]*:(.*)", re.DOTALL)
_RAW_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_SPELLING = {key.lower(): key for key in METRIC_OUTPUT.keys}


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
    if not any(chunk.lines for chunk in chunks):
        return [BadRecord("empty", "the body holds no record", body)]
    required = message_class.required if message_class else None
    complete = record_count == len(chunks) if record_count is not None else False
    return [chunk.read(complete, required) for chunk in chunks]


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


def spelled(fields: Mapping[str, str], keys: Iterable[str]) -> Record:
    """The same fields, with each key that equals one of `keys` but for its case spelled so."""
    spelling = {key.lower(): key for key in keys}
    return {spelling.get(key.lower(), key): value for key, value in fields.items()}


@dataclass
class _Chunk:
    """The lines of one record without its `EOT`, and the bytes it was read from."""

    line: int
    raw: bytes = b""
    lines: list[str] = field(default_factory=list)
    ended: bool = False
    replaced: bool = False

    def read(
        self, complete: bool, required: tuple[str, ...] | None
    ) -> Union[ReadRecord, BadRecord]:
        try:
            fields = _fields(self.lines)
        except _Malformed as problem:
            return self._bad(problem.reason, str(problem))
        if not fields:
            return self._bad("empty", "a record without a key")
        if not (self.ended or complete or self._whole(fields, required)):
            return self._bad("truncated", f"no {END} line ends the record")
        notes = ("invalid UTF-8 replaced",) if self.replaced else ()
        return ReadRecord(fields, self.raw, self.line, notes)

    def _whole(self, fields: Record, required: tuple[str, ...] | None) -> bool:
        """Whether a last record without `EOT` still shows that nothing of it is lost."""
        present = {key.lower() for key, value in fields.items() if value}
        if required is None or DETAILS.lower() in present or not self.raw.endswith(b"\n"):
            return False
        if "serviceuri" in present:
            present.add("hostname")
        if "servicetype" in present:
            present.add("serviceflavour")
        return present.issuperset(key.lower() for key in required)

    def _bad(self, reason: str, text: str) -> BadRecord:
        return BadRecord(reason, f"line {self.line}: {text}", self.raw, self.line)


class _Malformed(Exception):
    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def _split(body: bytes, known: Set[str]) -> Iterator[_Chunk]:
    """Cut at `EOT` lines; inside details only where a record or the text's end follows."""
    raw_lines = _RAW_LINE.findall(body.removeprefix(codecs.BOM_UTF8))
    lines = [_text(raw) for raw in raw_lines]
    chunk = _Chunk(1)
    in_details = False
    for at, (raw, line) in enumerate(zip(raw_lines, lines)):
        chunk.raw += raw
        if line.rstrip() == END and (not in_details or _record_starts(lines, at + 1, known)):
            chunk.ended = True
            yield chunk
            chunk, in_details = _Chunk(at + 2), False
        elif line.strip() or in_details:
            chunk.line = chunk.line if chunk.lines else at + 1
            chunk.lines.append(line)
            chunk.replaced = chunk.replaced or "\ufffd" in line
            in_details = in_details or _key_of(line) == DETAILS.lower()
    if chunk.lines:
        yield chunk


def _text(raw: bytes) -> str:
    """The line without its end; what is not UTF-8 shows as U+FFFD."""
    line = raw[:-1] if raw.endswith(b"\n") else raw
    line = line[:-1] if line.endswith(b"\r") else line
    return line.decode("utf-8", "replace")


def _record_starts(lines: list[str], at: int, known: Set[str]) -> bool:
    following = next((line for line in lines[at:] if line.strip()), None)
    return following is None or _key_of(following) in known


def _key_of(line: str) -> str:
    match = _LINE.fullmatch(line)
    return match.group(1).lower() if match else ""


def _fields(lines: list[str]) -> Record:
    if any("\0" in line for line in lines):
        raise _Malformed("nul-byte", "the record holds a NUL byte")
    fields: Record = {}
    seen = set()
    for at, line in enumerate(lines):
        match = _LINE.fullmatch(line)
        if match is None:
            raise _Malformed("no-key", f"{line[:60]!r} is no `key: value`")
        key, value = match.group(1), match.group(2).strip(" \t")
        if key.lower() in seen:
            raise _Malformed("duplicate-key", f"the key {key} stands twice")
        seen.add(key.lower())
        key = _SPELLING.get(key.lower(), key)
        if key == DETAILS:
            fields[key] = "\n".join([value, *lines[at + 1 :]])
            break
        fields[key] = value
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
