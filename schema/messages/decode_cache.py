"""The rows of a message as decode() gives them, from memory where the like of it was met before.

The same probes report again and again, and what they report differs in few values. So the text of
a record is taken without those values, decoded once with samples in their places, and remembered;
what the record itself says there is put in. All that is known here of the grammar is where such a
value stands in a text that leaves no doubt: any other message goes to decode().
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from typing import NamedTuple

from sam_pipeline.schema.messages.decode import Decoded, Row, decode
from sam_pipeline.schema.messages.foreign import FORMAT, RENAME
from sam_pipeline.schema.messages.message import CLASS, Message
from sam_pipeline.schema.records.classes import DETAILS, METRIC_OUTPUT
from sam_pipeline.schema.records.normalise import (
    MONITORING_HOST_HEADERS,
    NO_TIMES,
    STATUSES,
    Limits,
    utc,
    window,
)
from sam_pipeline.schema.records.text import BLANKS, END, Record, record_starts

STATUS, TIME = "metricStatus", "timestamp"

_SAMPLE = {
    STATUS: "OK",
    TIME: "2000-01-01T00:00:00Z",
    "summaryData": "summary",
    "performanceData": "figures",
    DETAILS: "details",
}
_SAMPLE_NOW = datetime(2000, 1, 1, tzinfo=timezone.utc)

# The rest of the line; of details the rest of the text.
_VALUES = re.compile(rf"\n({'|'.join(_SAMPLE)}): ((?<=\n{DETAILS}: )(?s:.*)|.*)")
_ENDED = f"\n{END}\n"

_REMEMBERED = 20_000
"""Templates to remember, of about 1 kB each."""

_LONGEST = 3000
"""Characters of a text that is remembered."""

_met: set[int] = set()
"""Hashes of texts met once: what comes twice will come again."""


class _Template(NamedTuple):
    """What a record says besides its changing values: `values` by column.

    `columns` are those of the changing values as they stand in the text; `status` and `time` are
    the places of these two among them.
    """

    values: Record
    columns: tuple[str, ...]
    status: int
    time: int


def recall(
    message: Message,
    columns: Sequence[str],
    now: datetime,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
    times: Mapping[str, str] = NO_TIMES,
) -> Decoded:
    """The same as decode(), but metric results in the form of our writer much quicker."""
    rows = _rows(message, tuple(columns), now, limits)
    return Decoded(tuple(rows), (), {}) if rows else decode(message, columns, now, limits, times)


def _rows(
    message: Message, columns: tuple[str, ...], now: datetime, limits: Limits
) -> list[Row] | None:
    """None if one of them has to be decoded."""
    texts = _texts(message, limits)
    host = next(filter(None, map(message.headers.get, MONITORING_HOST_HEADERS)), "")
    known = []
    for text in texts:
        parts = _VALUES.split(text)
        found = parts[2::3]
        del parts[2::3]
        known.append((text, found, _template(columns, host, "\0".join(parts))))
    earliest, latest = window(now, limits)
    rows: list[Row] = []
    for text, found, template in known:
        if template is None:
            return None
        status, time = found[template.status], found[template.time]
        if not (status in STATUSES and earliest <= time <= latest and _is_plain(time)):
            return None
        values = template.values.copy()
        for column, value in zip(template.columns, found):
            value = value.strip(BLANKS)
            if value:
                values[column] = value
        raw = message.body if len(texts) == 1 else (text + _ENDED).encode()
        rows.append(Row(len(rows) + 1, raw, values))
    return rows


def _texts(message: Message, limits: Limits) -> list[str]:
    """The texts of the records, if it is certain where each ends and each line of it."""
    headers = message.headers
    if headers.get(CLASS) != METRIC_OUTPUT.name or FORMAT in headers or RENAME in headers:
        return []
    if message.is_json or len(message.body) > limits.max_message_bytes:
        return []
    try:
        body = message.body.decode()
    except UnicodeDecodeError:
        return []
    texts = body.split(_ENDED)
    if texts.pop() or body.count(END) != len(texts) or len(texts) > limits.max_records:
        return []
    return [] if "\r" in body or "\0" in body or "\ufeff" in body else texts


def _is_plain(time: str) -> bool:
    try:
        return utc(time) == time
    except ValueError:
        return False


def _template(columns: tuple[str, ...], monitoring_host: str, text: str) -> _Template | None:
    """The template of a text without its values, a NUL in each place; None if it has none yet."""
    if hash(text) in _met:
        return _remembered(columns, monitoring_host, text)
    if len(_met) == _REMEMBERED:
        _met.clear()
    if len(text) + len(monitoring_host) <= _LONGEST:
        _met.add(hash(text))
    return None


@lru_cache(maxsize=_REMEMBERED)
def _remembered(columns: tuple[str, ...], monitoring_host: str, text: str) -> _Template | None:
    """What decode() makes of the text; None if that is not one row with every value in place."""
    first, *parts = text.split("\0")
    keys, rest = parts[::2], parts[1::2]
    lines = [f"\n{key}: {_SAMPLE[key]}{after}" for key, after in zip(keys, rest)]
    body = f"{first}{''.join(lines)}{_ENDED}".encode()
    # If no record began there, an EOT line before it might be one of the details before it.
    if not (STATUS in keys and TIME in keys and record_starts(body, 0, columns)):
        return None
    headers = {CLASS: METRIC_OUTPUT.name, MONITORING_HOST_HEADERS[0]: monitoring_host}
    found = decode(Message(headers, body), columns, _SAMPLE_NOW)
    if len(found.rows) != 1 or found.ignored:
        return None
    column_of = {column.lower(): column for column in columns}
    changing = tuple(column_of[key.lower()] for key in keys)
    values = {column: _shared(value) for column, value in found.rows[0].values.items()}
    if [values.pop(column, "") for column in changing] != [_SAMPLE[key] for key in keys]:
        return None
    return _Template(values, changing, keys.index(STATUS), keys.index(TIME))


@lru_cache(maxsize=_REMEMBERED)
def _shared(value: str) -> str:
    """One object for equal names, of which most are in many templates.

    Not sys.intern(): some Pythons 3.12 never forget what it got.
    """
    return value
