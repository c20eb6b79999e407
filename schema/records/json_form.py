"""Records as JSON: one flat object, or an array of them, with the keys of the text form."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from math import isfinite
from typing import Any

from sam_pipeline.schema.errors import MessageRefused
from sam_pipeline.schema.records.text import (
    NO_RENAMES,
    BadRecord,
    Malformed,
    Reading,
    ReadRecord,
    Record,
    too_many,
)
from sam_pipeline.schema.times import format_time

MAX_DEPTH = 32
"""Arrays and objects inside each other in one item; a flat record has one."""

VALUES_PER_RECORD = 20
"""Times `max_records`: the limit on the values of a message, each 50 to 300 bytes in memory."""
MIN_VALUES = 10_000


def read_json(
    body: bytes,
    *,
    renames: Mapping[str, str] = NO_RENAMES,
    max_records: int = sys.maxsize,
    nested_as_text: bool = False,
) -> Reading:
    """The records of a body; `line` is the number of the object, from 1.

    Numbers and booleans become text, keys with null are omitted. A body that is not JSON, or nested
    deeper than MAX_DEPTH, is one bad record. A nested value makes its record bad, but with
    `nested_as_text` a list becomes JSON text. `renames` maps foreign keys in lower case to ours.

    Raises:
        MessageRefused: more than `max_records`, or too many values for as many records.
    """
    max_values = max(VALUES_PER_RECORD * max_records, MIN_VALUES)
    if body.count(b",") > max_values and _commas_outside_strings(body) > max_values:
        text = f"more than {max_values} values; max_records = {max_records}"
        raise MessageRefused("too-many-records", text)

    def refuse_constant(name: str) -> None:
        raise ValueError(f"{name} is not a JSON number")

    try:
        document = json.loads(
            body.decode("utf-8-sig"),
            object_pairs_hook=_Pairs,
            parse_constant=refuse_constant,
            parse_int=str,
            parse_float=str,
        )
        if isinstance(document, _Pairs):
            return [_read_item(document, 1, body, renames, nested_as_text)]
        if not isinstance(document, list):
            return [BadRecord("not-json", "neither an object nor an array of objects", body)]
        if not document:
            return [BadRecord("empty", "an array without a record", body)]
        if len(document) > max_records:
            raise too_many(max_records)
        return [
            _read_item(item, number, _dump(item), renames, nested_as_text)
            for number, item in enumerate(document, 1)
        ]
    except (RecursionError, _TooDeep):
        return [BadRecord("not-json", f"nested more than {MAX_DEPTH} levels deep", body)]
    except ValueError as error:
        return [BadRecord("empty" if not body.strip() else "not-json", str(error), body)]


def write_json(records: Iterable[Mapping[str, str]]) -> str:
    """The records as one array."""
    return json.dumps(list(records), ensure_ascii=False)


def text_of(key: str, value: object) -> str:
    """The text of a value: itself, or that of a number, a boolean, a day or an aware time.

    Raises:
        Malformed: the value of this key has no text.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple, Mapping)):
        raise Malformed("nested", f"has a nested value of {key[:60]!r}")
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise Malformed("bad-time", f"has a time without a time zone as {key[:60]!r}")
        return format_time(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, int) or (isinstance(value, float) and isfinite(value)):
        try:
            return json.dumps(value)
        except ValueError:  # Python limits the digits of an integer
            raise Malformed("not-json", f"has too many digits in {key[:60]!r}") from None
    raise Malformed("not-json", f"has a value of {key[:60]!r} that is not a JSON value")


def _commas_outside_strings(body: bytes) -> int:
    without_escapes = body.replace(rb"\\", b"").replace(rb"\"", b"")
    strings = re.finditer(rb'"[^"]*"', without_escapes)
    inside = sum(without_escapes.count(b",", *string.span()) for string in strings)
    return without_escapes.count(b",") - inside


class _Pairs(list[tuple[str, Any]]):
    """The pairs of an object, in order, so that repeated keys are noticed."""


class _TooDeep(Exception):
    """A value is nested deeper than MAX_DEPTH."""


def _read_item(
    item: Any, number: int, raw: bytes, renames: Mapping[str, str], nested_as_text: bool
) -> ReadRecord | BadRecord:
    fields: Record = {}
    names = set()
    try:
        if not isinstance(item, _Pairs):
            raise Malformed("not-json", "is not an object")
        for key, value in item:
            name = key.lower()
            if name in renames:
                key = renames[name]
                name = key.lower()
            if name in names:
                raise Malformed("duplicate-key", f"has the key {key[:60]!r} twice")
            names.add(name)
            if value is None:
                continue
            if not isinstance(value, str):  # read as text: all but a boolean, a list or an object
                is_nested = nested_as_text and isinstance(value, list)
                value = _dump(value).decode() if is_nested else text_of(key, value)
            if not (key.isprintable() and value.isprintable()):  # a quick test that nearly all pass
                if re.search(r"[\ud800-\udfff]", f"{key}{value}"):
                    raise Malformed("bad-text", f"has a lone surrogate in {key[:60]!r}")
                if "\0" in f"{key}{value}":
                    raise Malformed("nul-byte", f"has a NUL byte in {key[:60]!r}")
            fields[key] = value
        if not fields:
            raise Malformed("empty", "has no key")
    except Malformed as problem:
        return BadRecord(problem.reason, f"item {number} {problem}", raw, number)
    return ReadRecord(fields, raw, number)


def _dump(item: Any) -> bytes:
    """The item by itself; raises _TooDeep."""
    return json.dumps(_plain(item, MAX_DEPTH)).encode()


def _plain(item: Any, levels: int) -> Any:
    """The item with dicts for its objects; of a repeated key the last value wins."""
    if not isinstance(item, list):
        return item
    if not levels:
        raise _TooDeep
    if isinstance(item, _Pairs):
        return {key: _plain(value, levels - 1) for key, value in item}
    return [_plain(value, levels - 1) for value in item]
