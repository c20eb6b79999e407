"""Values of records: those of Python as texts, and the name of this host."""

from __future__ import annotations

import os
from _socket import gethostbyaddr  # `import socket` takes 2.2 ms, 4 % of a call
from collections.abc import Mapping

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.net.deadline import Deadline, within
from sam_pipeline.schema.records.json_form import text_of
from sam_pipeline.schema.records.text import Malformed, Record

HOST_NAME_TIMEOUT_S = 2.0


def record_of_values(values: Mapping[str, object]) -> Record:
    """The record with a text for each value; a key with None is left out.

    Raises:
        RecordRefused: a key or a value can't be part of a record; the text names it.
    """
    if not isinstance(values, Mapping):
        raise RecordRefused("not-json", f"the record is not a mapping but {_shown(values)}")
    record: Record = {}
    names = set()
    for key, value in values.items():
        if not is_key(key):
            raise RecordRefused("no-key", f"{_shown(key)} is not a valid key")
        if key.lower() in names:
            raise RecordRefused("duplicate-key", f"the record has the key {key!r} twice")
        names.add(key.lower())
        if value is None:
            continue
        if not isinstance(value, str):
            try:
                value = text_of(key, value)
            except Malformed as problem:
                text = f"the record {problem}: {_shown(value)}"
                raise RecordRefused(problem.reason, text) from None
        if "\0" in value:
            raise RecordRefused("nul-byte", f"the value of {key} contains a NUL byte")
        record[key] = value
    if not record:
        raise RecordRefused("empty", "the record has no key with a value")
    return record


def is_key(key: object) -> bool:
    """Whether a record may have this key: ASCII letters, digits and `_`."""
    return isinstance(key, str) and key.isascii() and key.isidentifier()


def this_host() -> str:
    """The full name of this host; the short one if DNS has no full name or is slow to answer."""
    name = os.uname().nodename
    if "." in name:
        return name
    deadline = Deadline.after(HOST_NAME_TIMEOUT_S)
    try:
        # A str would be encoded as IDNA, whose codec is also slow to import.
        host, aliases, _ = within(deadline, gethostbyaddr, name.encode())
    except (OSError, UnicodeError, RuntimeError):  # including TimeoutError; no more threads
        return name
    for alias in (host, *aliases):
        if "." in alias:
            return name if alias.startswith("localhost") else str(alias)
    return name


def _shown(value: object) -> str:
    try:
        return f"{type(value).__name__} {value!r:.80}"
    except ValueError:  # Python limits the digits of an integer that it prints
        return type(value).__name__
