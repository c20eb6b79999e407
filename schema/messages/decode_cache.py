"""A cache in front of decode(), for records that differ from earlier ones in only a few values.

A probe reports the same result again and again, apart from a status, a time and some texts. The
record without these values is its outline. decode() runs once for each outline, with sample values,
and gives a template, which is cached and filled with the values of later records. Only records in
which these values are certain to be found are decoded this way; other messages go to decode().
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache, partial
from typing import NamedTuple

from sam_pipeline.schema.messages.decode import Decoded, Row, decode
from sam_pipeline.schema.messages.foreign import FORMAT, RENAME
from sam_pipeline.schema.messages.message import CLASS, CONTENT_TYPE, TEXT, Message
from sam_pipeline.schema.records.classes import DETAILS, METRIC_OUTPUT
from sam_pipeline.schema.records.normalise import (
    MONITORING_HOST_HEADERS,
    NO_TIMES,
    STATUSES,
    Limits,
)
from sam_pipeline.schema.records.text import BLANKS, END, Record, record_starts
from sam_pipeline.schema.times import utc, window

STATUS, TIME = "metricStatus", "timestamp"

_SAMPLE = {
    STATUS: "OK",
    TIME: "2000-01-01T00:00:00Z",
    "summaryData": "summary",
    "performanceData": "figures",
    DETAILS: "details",
}
_SAMPLE_NOW = datetime(2000, 1, 1, tzinfo=timezone.utc)

# The value of details is the rest of the text, any other value the rest of its line.
_VALUES = re.compile(rf"\n({'|'.join(_SAMPLE)}): ((?<=\n{DETAILS}: )(?s:.*)|.*)")
_RECORD_END = f"\n{END}\n"

_MAX_TEMPLATES = 20_000
"""The size of the cache, in templates of about 1 kB."""

_MAX_OUTLINE = 3000
"""The longest outline that is cached, in characters."""

_seen: set[int] = set()
"""Hashes of outlines; only an outline that is seen twice is worth a template."""

_deduplicated = lru_cache(maxsize=_MAX_TEMPLATES)(str)
"""Makes the templates share equal strings.

Not sys.intern(): some releases of Python 3.12 never free its strings.
"""


class _Template(NamedTuple):
    """`constants` by column, and the columns of the changing values in the order of the text.

    `status` and `time` are the indexes of these two.
    """

    constants: Record
    changing_columns: tuple[str, ...]
    status: int
    time: int


class CachedDecoder:
    """decode() for messages that arrive together, but much faster for metric results that
    `write_wlcg` wrote.
    """

    def __init__(
        self,
        columns: Sequence[str],
        now: datetime,
        limits: Limits = Limits(),  # noqa: B008 - a frozen value
        times: Mapping[str, str] = NO_TIMES,
    ) -> None:
        self._columns = tuple(columns)
        self._now = now
        self._limits = limits
        self._times = times
        self._earliest, self._latest = window(now, limits.past, limits.future)
        self._template = _templates(self._columns)

    def decode(self, message: Message) -> Decoded:
        """The rows and refused records of a message."""
        rows = self.cached_rows(message)
        if rows:
            return Decoded(tuple(rows), (), {})
        return decode(message, self._columns, self._now, self._limits, self._times)

    def cached_rows(self, message: Message) -> list[Row]:
        """The rows of a message if each of its records has a template; otherwise an empty list."""
        headers, body = message
        if headers.get(CLASS) != METRIC_OUTPUT.name or FORMAT in headers or RENAME in headers:
            return []
        if headers.get(CONTENT_TYPE) != TEXT and message.is_json:
            return []
        if len(body) > self._limits.max_message_bytes:
            return []
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return []
        records = text.split(_RECORD_END)
        # It must be certain where each record and each line ends.
        if records.pop() or text.count(END) != len(records):
            return []
        if "\r" in text or "\0" in text or "\ufeff" in text:
            return []
        if len(records) > self._limits.max_records:
            return []

        first, second = MONITORING_HOST_HEADERS
        host = headers.get(first) or headers.get(second) or ""
        rows: list[Row] = []
        for record in records:
            pieces = _VALUES.split(record)  # constant text, key, value, constant text, key, ...
            values = pieces[2::3]
            del pieces[2::3]
            row = self._row(host, "\0".join(pieces), values)
            if row is not None:
                raw = body if len(records) == 1 else (record + _RECORD_END).encode()
                rows.append(Row(len(rows) + 1, raw, row))
        return rows if len(rows) == len(records) else []

    def _row(self, host: str, outline: str, values: Sequence[str]) -> Record | None:
        """The values by column, if there is a template for them; otherwise the outline is noted."""
        if hash(outline) not in _seen:
            if len(outline) + len(host) <= _MAX_OUTLINE:
                if len(_seen) == _MAX_TEMPLATES:
                    _seen.clear()
                _seen.add(hash(outline))
            return None
        template = self._template(host, outline)
        if template is None:
            return None
        status, time = values[template.status], values[template.time]
        if status not in STATUSES or not self._earliest <= time <= self._latest:
            return None
        try:
            if utc(time) != time:
                return None
        except ValueError:
            return None
        row = template.constants.copy()
        for column, value in zip(template.changing_columns, values):
            value = value.strip(BLANKS)
            if value:
                row[column] = value
        return row


@lru_cache(maxsize=1)  # the view of metric results in the database
def _templates(columns: tuple[str, ...]) -> Callable[[str, str], _Template | None]:
    """The templates for a view with these columns, by monitoring host and outline."""
    return lru_cache(maxsize=_MAX_TEMPLATES)(partial(_make_template, columns))


def _make_template(
    columns: tuple[str, ...], monitoring_host: str, outline: str
) -> _Template | None:
    """The template of an outline: constant text and keys in turn, separated by NULs.

    None unless decode() gives one row, with each sample value in the column of its key.
    """
    beginning, *pieces = outline.split("\0")
    keys, texts = pieces[::2], pieces[1::2]
    lines = [f"\n{key}: {_SAMPLE[key]}{after}" for key, after in zip(keys, texts)]
    body = f"{beginning}{''.join(lines)}{_RECORD_END}".encode()
    # Unless a record starts here, the EOT line before may be part of the previous one's details.
    if not (STATUS in keys and TIME in keys and record_starts(body, 0, columns)):
        return None
    headers = {CLASS: METRIC_OUTPUT.name, MONITORING_HOST_HEADERS[0]: monitoring_host}
    decoded = decode(Message(headers, body), columns, _SAMPLE_NOW)
    if len(decoded.rows) != 1 or decoded.ignored:
        return None
    column_of = {column.lower(): column for column in columns}
    changing = tuple(column_of[key.lower()] for key in keys)
    constants = {column: _deduplicated(value) for column, value in decoded.rows[0].values.items()}
    if [constants.pop(column, "") for column in changing] != [_SAMPLE[key] for key in keys]:
        return None
    return _Template(constants, changing, keys.index(STATUS), keys.index(TIME))
