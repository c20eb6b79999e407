"""The rows of a message as decode() gives them, from a cache of similar records.

The same probes report again and again, and their reports differ in few values. So the text of a
record is cut out around those values, decoded once with samples in their places, and cached as a
template; the record's own values are then filled in. This module knows only as much of the grammar
as it takes to find such values in an unambiguous text: any other message goes to decode().
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

# A value is the rest of its line, details are the rest of the text.
_VALUES = re.compile(rf"\n({'|'.join(_SAMPLE)}): ((?<=\n{DETAILS}: )(?s:.*)|.*)")
_ENDED = f"\n{END}\n"

_REMEMBERED = 20_000
"""Templates to cache, of about 1 kB each."""

_LONGEST = 3000
"""Characters of a text that is cached."""

_met: set[int] = set()
"""Hashes of texts seen once: a text that comes twice will come again."""


class _Template(NamedTuple):
    """The constant `values` of a record by column, and the columns of its changing values.

    `columns` are in the order of the text; `status` and `time` are the indexes of these two.
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
    """Like decode(), but much faster for metric results in the form of our writer."""
    rows = _rows(message, tuple(columns), now, limits)
    return Decoded(tuple(rows), (), {}) if rows else decode(message, columns, now, limits, times)


def _rows(
    message: Message, columns: tuple[str, ...], now: datetime, limits: Limits
) -> list[Row] | None:
    """None if one of them has to be decoded."""
    texts = _texts(message, limits)
    host = next(filter(None, map(message.headers.get, MONITORING_HOST_HEADERS)), "")
    cut_texts = []
    for text in texts:
        parts = _VALUES.split(text)
        changing = parts[2::3]
        del parts[2::3]
        cut_texts.append((text, changing, _template(columns, host, "\0".join(parts))))
    earliest, latest = window(now, limits)
    rows: list[Row] = []
    for text, changing, template in cut_texts:
        if template is None:
            return None
        status, time = changing[template.status], changing[template.time]
        if not (status in STATUSES and earliest <= time <= latest and _is_plain(time)):
            return None
        values = template.values.copy()
        for column, value in zip(template.columns, changing):
            value = value.strip(BLANKS)
            if value:
                values[column] = value
        raw = message.body if len(texts) == 1 else (text + _ENDED).encode()
        rows.append(Row(len(rows) + 1, raw, values))
    return rows


def _texts(message: Message, limits: Limits) -> list[str]:
    """The texts of the records; none unless it is certain where each record and line ends."""
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
    """The template of a text with NULs for its changing values; None if there is none yet."""
    if hash(text) in _met:
        return _remembered(columns, monitoring_host, text)
    if len(_met) == _REMEMBERED:
        _met.clear()
    if len(text) + len(monitoring_host) <= _LONGEST:
        _met.add(hash(text))
    return None


@lru_cache(maxsize=_REMEMBERED)
def _remembered(columns: tuple[str, ...], monitoring_host: str, text: str) -> _Template | None:
    """The template by decode(); None unless it gives one row with every sample in its column."""
    first, *parts = text.split("\0")
    keys, rest = parts[::2], parts[1::2]
    lines = [f"\n{key}: {_SAMPLE[key]}{after}" for key, after in zip(keys, rest)]
    body = f"{first}{''.join(lines)}{_ENDED}".encode()
    # Else the EOT line before the text might belong to the details of the record before it.
    if not (STATUS in keys and TIME in keys and record_starts(body, 0, columns)):
        return None
    headers = {CLASS: METRIC_OUTPUT.name, MONITORING_HOST_HEADERS[0]: monitoring_host}
    decoded = decode(Message(headers, body), columns, _SAMPLE_NOW)
    if len(decoded.rows) != 1 or decoded.ignored:
        return None
    column_of = {column.lower(): column for column in columns}
    changing = tuple(column_of[key.lower()] for key in keys)
    values = {column: _shared(value) for column, value in decoded.rows[0].values.items()}
    if [values.pop(column, "") for column in changing] != [_SAMPLE[key] for key in keys]:
        return None
    return _Template(values, changing, keys.index(STATUS), keys.index(TIME))


@lru_cache(maxsize=_REMEMBERED)
def _shared(value: str) -> str:
    """One object for equal names, most of which are in many templates.

    Not sys.intern(): some releases of Python 3.12 never free its strings.
    """
    return value
