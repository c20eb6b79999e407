"""The JSON payload: one object, or an array of flat objects, with the keys of the record."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from schema.record import BadRecord, Reading, ReadRecord, Record

CONTENT_TYPE = "application/json"


def read_json(body: bytes) -> Reading:
    """The records of a body; `line` is the number of the object, from 1.

    Numbers and booleans become their text, null an absent key. A body that is no JSON is one bad
    record.
    """
    try:
        document = json.loads(
            body.decode("utf-8-sig"),
            object_pairs_hook=_Pairs,
            parse_constant=_refuse_constant,
            parse_int=str,
            parse_float=str,
        )
    except RecursionError:
        return [BadRecord("not-json", "nested too deep", body)]
    except ValueError as error:
        return [BadRecord("empty" if not body.strip() else "not-json", str(error), body)]
    if isinstance(document, _Pairs):
        return [_read_object(document, 1, body)]
    if not isinstance(document, list):
        return [BadRecord("not-json", "neither an object nor an array of objects", body)]
    if not document:
        return [BadRecord("empty", "an array without a record", body)]
    return [
        _read_object(item, number, _dump(item, body)) for number, item in enumerate(document, 1)
    ]


def write_json(records: Iterable[Mapping[str, str]]) -> str:
    """The records as one array."""
    return json.dumps(list(records), ensure_ascii=False)


class _Pairs(list[tuple[str, Any]]):
    """An object's pairs in order, so that a key given twice can be seen."""


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _read_object(item: Any, number: int, raw: bytes) -> ReadRecord | BadRecord:
    if not isinstance(item, _Pairs):
        return BadRecord("not-json", f"item {number} is no object", raw, number)
    fields: Record = {}
    seen: set[str] = set()
    for key, value in item:
        problem = _problem(key, value, seen)
        if problem:
            return BadRecord(problem[0], f"item {number}: {problem[1]}", raw, number)
        seen.add(key.lower())
        if value is not None:
            fields[key] = _text(value)
    if not fields:
        return BadRecord("empty", f"item {number} has no key", raw, number)
    return ReadRecord(fields, raw, number)


def _problem(key: str, value: Any, seen: set[str]) -> tuple[str, str] | None:
    if isinstance(value, (list, _Pairs)):
        return "nested", f"the value of {key} is nested"
    if key.lower() in seen:
        return "duplicate-key", f"the key {key} stands twice"
    if isinstance(value, str) and any(0xD800 <= ord(character) <= 0xDFFF for character in value):
        return "bad-text", f"the value of {key} holds a lone surrogate"
    if "\0" in key or (isinstance(value, str) and "\0" in value):
        return "nul-byte", f"the value of {key} holds a NUL byte"
    return None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _dump(item: Any, body: bytes) -> bytes:
    """The item alone; the whole body where it is nested too deep to be cut out."""
    try:
        return json.dumps(_plain(item)).encode()
    except RecursionError:
        return body


def _plain(item: Any) -> Any:
    """The item with its objects as objects again; of a key given twice the last shows."""
    if isinstance(item, _Pairs):
        return {key: _plain(value) for key, value in item}
    return [_plain(value) for value in item] if isinstance(item, list) else item
