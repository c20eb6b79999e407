"""The text form of WLCG records: a strict writer and a tolerant reader.

Reading splits a body into records and a record into keys and values; `normalise` interprets the
values. docs/record.md has the grammar and the deviations that are tolerated.
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
    column_names,
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
"""The order in which existing writers put these keys; others follow, details last."""

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
    """A record that can't be read: `reason` is a keyword, `text` a sentence."""

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
    """The records of a body, in order; a bad record does not affect its neighbours.

    `columns` are the keys of a site's own class: an `EOT` line inside details ends the record if
    one of them or a built-in key follows. `record_count` is the header of that name: if it is
    right, the last `EOT` may be missing. `renames` maps foreign keys in lower case to ours.

    Raises:
        MessageRefused: more than `max_records`.
    """
    spelling = _spelling(tuple(renames.items())) if renames else _SPELLING
    keys = (*columns, *renames) if renames else tuple(columns)
    chunks = _split(body, keys, spelling, max_records)
    required = message_class.required if message_class else ()
    complete = record_count == len(chunks)
    reading: Reading = []
    line = 1
    for text, end in chunks:
        reading.append(_read_record(text, end, line, complete, required, spelling))
        line += text.count(b"\n") + 1
    if all(isinstance(record, BadRecord) and record.reason == "empty" for record in reading):
        return [BadRecord("empty", "the body contains no record", body)]
    return reading


def write_wlcg(record: Mapping[str, str]) -> str:
    """The record as text, ending with `EOT`; empty values are omitted.

    A summary of several lines or more than 255 characters is cut to one line, and its full text is
    put before the details. A details line that would end the record gets one leading blank.
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
        full = values.pop(SUMMARY).strip(f"{BLANKS}\n")
        short = full.split("\n", 1)[0][:SUMMARY_LENGTH].strip(BLANKS)
        if short:
            values[SUMMARY] = short
        if short != full:
            values[DETAILS] = f"{full}\n{values[DETAILS]}" if DETAILS in values else full
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
    """The error for a message with more records than its limit."""
    text = f"the message has more than max_records = {max_records}"
    return MessageRefused("too-many-records", text)


def text_lines(text: str) -> list[str]:
    """The lines, without leading byte order marks and trailing carriage returns."""
    lines = text.split("\n")
    if "\r" in text or _BOM in text:
        lines = [line.rstrip("\r").lstrip(_BOM) for line in lines]
    return lines


def unescaped(text: str) -> str:
    """The text of `$LONGSERVICEOUTPUT$`, in which Nagios escapes line ends and backslashes.

    It escapes neither in its other macros. NRDP has all output of a check in this form.
    """
    return "\\".join(part.replace("\\n", "\n") for part in text.split("\\\\"))


class Malformed(Exception):
    """A record that can't be read; the reader turns it into a BadRecord."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def _split(
    body: bytes, columns: tuple[str, ...], spelling: Names, max_records: int
) -> list[tuple[bytes, bytes]]:
    """The text of each record and its `EOT` line; not every such line in details ends a record."""
    chunks = []
    begin = searched = end = 0
    in_details = False
    while (at := body.find(_END, end)) >= 0:
        start = body.rfind(b"\n", end, at) + 1 or end
        end = body.find(b"\n", at) + 1 or len(body)
        line = body[start:end]
        if line != _END_LINE and _lines(line)[0].rstrip() != END:
            continue
        if not record_starts(body, end, columns):
            keys = map(_key, _lines(body[searched:start]))
            in_details = in_details or any(spelling[key] == DETAILS for key in keys)
            searched = start
            if in_details:
                continue
        chunks.append((body[begin:start], body[start:end]))
        if len(chunks) > max_records:  # before more of them take memory
            raise too_many(max_records)
        begin = searched = end
        in_details = False
    if begin < len(body) and any(map(str.strip, _lines(body[begin:]))):
        chunks.append((body[begin:], b""))
    if len(chunks) > max_records:
        raise too_many(max_records)
    return chunks


def record_starts(body: bytes, at: int, columns: tuple[str, ...]) -> bool:
    """Whether a record begins at this offset, or only blank lines follow."""
    while at < len(body):
        end = body.find(b"\n", at) + 1 or len(body)
        line = _lines(body[at:end])[0]
        if line.strip():
            key = _key(line)
            return bool(KNOWN_KEYS[key] or column_names(columns)[key])
        at = end
    return True


@lru_cache(maxsize=100)
def _spelling(renames: tuple[tuple[str, str], ...]) -> Names:
    """Our spelling of all keys, including the foreign ones."""
    spelling = Names([*METRIC_OUTPUT.keys, *(ours for _, ours in renames)])
    for foreign, ours in renames:
        # In the built-in spelling, by which the reader recognises details.
        spelling[foreign] = _SPELLING[ours] or ours
    return spelling


def _key(line: str) -> str:
    """The key of a `key: value` line, or ''."""
    key, colon, _ = line.partition(":")
    key = key.strip()
    return key if colon and key.isidentifier() and key.isascii() else ""


def _lines(text: bytes) -> list[str]:
    return text_lines(text.decode("utf-8", "replace"))


def _read_record(
    text: bytes, end: bytes, line: int, complete: bool, required: tuple[str, ...], spelling: Names
) -> ReadRecord | BadRecord:
    """One record from its text and its `EOT` line, which may be missing if it is `complete`."""
    lines = _lines(text.removesuffix(b"\n"))
    if not lines[0].strip():
        filled = (number for number, content in enumerate(lines) if content.strip())
        line += next(filled, text.count(b"\n"))
    fields: Record = {}
    unknown: dict[str, str] = {}
    remaining = iter(lines)
    try:
        for content in remaining:
            name, colon, value = content.partition(":")
            key = spelling.get(name)
            if not key or not colon:  # not in the form of our writer
                if not content.strip():
                    continue
                name = _key(content)
                if not name:
                    raise Malformed("no-key", f"{content[:60]!r} is not a line `key: value`")
                key = spelling[name] or unknown.setdefault(name.lower(), name)
            if key in fields:
                raise Malformed("duplicate-key", f"the key {name[:60]} appears twice")
            if key == DETAILS:
                value = "\n".join([value, *remaining])
            fields[key] = value.strip(BLANKS)
        if not fields:
            raise Malformed("empty", "a record without a key")
        for key, value in fields.items() if b"\0" in text else ():
            if "\0" in value:
                raise Malformed("nul-byte", f"the value of {key[:60]} contains a NUL byte")
        if not (end or complete):
            present = {key.lower() for key, value in fields.items() if value}
            if "serviceuri" in present:
                present.add("hostname")
            if "servicetype" in present:
                present.add("serviceflavour")
            has_required = required and present.issuperset(key.lower() for key in required)
            if not has_required or fields.get(DETAILS) or not text.endswith(b"\n"):
                raise Malformed("truncated", f"no {END} line ends the record")
    except Malformed as problem:
        return BadRecord(problem.reason, f"line {line}: {problem}", text + end, line)
    replaced = not text.isascii() and any("\ufffd" in value for value in fields.values())
    return ReadRecord(fields, text + end, line, _REPLACED if replaced else ())
