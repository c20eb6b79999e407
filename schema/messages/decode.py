"""Decodes a message into the rows of its class and the records that can never be loaded.

A probe reports the same result again and again, apart from a status, a time and some texts. The
record without these values is its outline. CachedDecoder calls `decode` once for each outline, with
sample values, and caches the template that this gives, to be filled with the values of later
records. Only records in which these values are certain to be found are decoded this way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from typing import NamedTuple

from sam_pipeline.schema.errors import MessageRefused, RecordRefused
from sam_pipeline.schema.messages.foreign import NSTREAM, format_of, parse_renames, read_nstream
from sam_pipeline.schema.messages.message import (
    CLASS,
    CONTENT_TYPE,
    FORMAT,
    RENAME,
    TEXT,
    Message,
    made_at,
)
from sam_pipeline.schema.records.classes import (
    DETAILS,
    METRIC_OUTPUT,
    STATEMENTS,
    built_in,
    column_names,
)
from sam_pipeline.schema.records.json_form import read_json
from sam_pipeline.schema.records.normalise import (
    MONITORING_HOST_HEADERS,
    NO_TIMES,
    STATUSES,
    Limits,
    normalise,
)
from sam_pipeline.schema.records.text import (
    BLANKS,
    END,
    NO_RENAMES,
    BadRecord,
    Reading,
    Record,
    read_wlcg,
    record_starts,
    too_many,
)
from sam_pipeline.schema.times import utc, window

WHOLE = 0
"""The record number of a whole message; records are counted from 1."""
MOST_REFUSED = 20
"""Refused records of one message of which each is reported; further ones are only counted."""
LONGEST_KEY = 80
"""Characters of an ignored key by which it is counted; the counts live as long as the process."""


class Row(NamedTuple):
    """One row for the view: `values` by column in the view's spelling, without empty ones."""

    number: int
    raw: bytes
    values: Mapping[str, str]


class Refused(NamedTuple):
    """A record that can't become a row, by its number; WHOLE stands for the whole message.

    After the first MOST_REFUSED of a message, one stands for all `records` with its reason.
    """

    number: int
    reason: str
    text: str
    raw: bytes
    records: int = 1


class Decoded(NamedTuple):
    """The contents of a message; `ignored` counts keys that have no column in the view."""

    rows: tuple[Row, ...]
    bad: tuple[Refused, ...]
    ignored: Mapping[str, int]


def read(
    message: Message,
    columns: Sequence[str] = (),
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
) -> Reading:
    """The records of a message, read by its format and content type, with our keys.

    Raises:
        MessageRefused: it exceeds a limit, or a header is invalid.
    """
    headers, body = message.headers, message.body
    if len(body) > limits.max_message_bytes:
        text = f"{len(body)} bytes, above max_message_bytes = {limits.max_message_bytes}"
        raise MessageRefused("too-large", text)
    max_records = limits.max_records
    renames = parse_renames(headers[RENAME]) if RENAME in headers else NO_RENAMES
    message_class = built_in(headers.get(CLASS))
    if FORMAT in headers and format_of(message) == NSTREAM:
        return read_nstream(
            body, message_class=message_class, renames=renames, max_records=max_records
        )
    if headers.get(CONTENT_TYPE) != TEXT and message.is_json:
        return read_json(body, renames=renames, max_records=max_records)
    return read_wlcg(
        body,
        message_class=message_class,
        columns=columns,
        record_count=message.record_count,
        renames=renames,
        max_records=max_records,
    )


def decode(
    message: Message,
    columns: Sequence[str],
    now: datetime,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
    times: Mapping[str, str] = NO_TIMES,
) -> Decoded:
    """The rows of a message for a view with these columns; for `times` see `normalise`."""
    try:
        records = read(message, columns, limits)
    except MessageRefused as refusal:
        return _refused_whole(message, refusal)
    column_of = column_names(tuple(columns))
    headers = message.headers
    class_name = headers.get(CLASS, "")
    made = made_at(message.message_id) if built_in(class_name) in STATEMENTS else ""
    rows: list[Row] = []
    bad: list[Refused] = []
    further: dict[str, int] = {}
    ignored: dict[str, int] = {}
    for number, record in enumerate(records, 1):
        if isinstance(record, BadRecord):
            _add_refused(Refused(number, record.reason, record.text, record.raw), bad, further)
            continue
        try:
            normalised = normalise(record.fields, class_name, headers, now, limits, times, made)
            # A record with a list of flavours becomes a row for each of them.
            if len(rows) + len(normalised) > limits.max_records:
                raise too_many(limits.max_records)
        except MessageRefused as refusal:
            return _refused_whole(message, refusal)
        except RecordRefused as refusal:
            _add_refused(Refused(number, refusal.reason, refusal.text, record.raw), bad, further)
            continue
        for row in normalised:
            values = {column_of[key]: value for key, value in row.items()}
            values.pop("", None)  # the keys without a column
            rows.append(Row(number, record.raw, values))
        if len(values) < len(row):
            for key, value in record.fields.items():
                if value and not column_of[key]:
                    key = key[:LONGEST_KEY]
                    ignored[key] = ignored.get(key, 0) + 1
    if further:
        bad[MOST_REFUSED:] = [
            refused._replace(records=further[refused.reason]) for refused in bad[MOST_REFUSED:]
        ]
    return Decoded(tuple(rows), tuple(bad), ignored)


def _add_refused(refused: Refused, bad: list[Refused], further: dict[str, int]) -> None:
    """Add it to `bad` if it is one of the first, or else the first `further` one of its reason."""
    if len(bad) >= MOST_REFUSED:
        further[refused.reason] = further.get(refused.reason, 0) + 1
        if further[refused.reason] > 1:
            return
    bad.append(refused)


def _refused_whole(message: Message, refusal: MessageRefused) -> Decoded:
    whole = Refused(WHOLE, refusal.reason, refusal.text, message.body)
    return Decoded((), (whole,), {})


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
    """The templates for a view with these columns, by monitoring host and outline.

    An outline is constant text and keys in turn, separated by NULs. It has no template unless
    decode() gives one row, with each sample value in the column of its key.
    """
    column_of = {column.lower(): column for column in columns}

    @lru_cache(maxsize=_MAX_TEMPLATES)
    def template(monitoring_host: str, outline: str) -> _Template | None:
        beginning, *pieces = outline.split("\0")
        keys, texts = pieces[::2], pieces[1::2]
        lines = [f"\n{key}: {_SAMPLE[key]}{after}" for key, after in zip(keys, texts)]
        body = f"{beginning}{''.join(lines)}{_RECORD_END}".encode()
        # Unless a record starts here, the EOT line before may be part of earlier details.
        if not (STATUS in keys and TIME in keys and record_starts(body, 0, columns)):
            return None
        headers = {CLASS: METRIC_OUTPUT.name, MONITORING_HOST_HEADERS[0]: monitoring_host}
        decoded = decode(Message(headers, body), columns, _SAMPLE_NOW)
        if len(decoded.rows) != 1 or decoded.ignored:
            return None
        changing = tuple(column_of[key.lower()] for key in keys)
        [row] = decoded.rows
        constants = {column: _deduplicated(value) for column, value in row.values.items()}
        if [constants.pop(column, "") for column in changing] != [_SAMPLE[key] for key in keys]:
            return None
        return _Template(constants, changing, keys.index(STATUS), keys.index(TIME))

    return template
