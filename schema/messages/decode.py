"""From a message to the rows of its class, and to its records that can never be rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from sam_pipeline.schema.errors import MessageRefused, RecordRefused
from sam_pipeline.schema.messages.foreign import FORMAT, NSTREAM, RENAME, format_of, renames_of
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.records.classes import KNOWN_KEYS, Names, built_in
from sam_pipeline.schema.records.json_form import read_json
from sam_pipeline.schema.records.normalise import NO_TIMES, Limits, normalise
from sam_pipeline.schema.records.nstream import read_nstream
from sam_pipeline.schema.records.text import NO_RENAMES, BadRecord, Reading, read_wlcg, too_many

WHOLE = 0
"""The record number of a whole message; records are counted from 1."""
LONGEST_KEY = 80
"""Ignored keys are reported, and counted for as long as a process lives."""


class Row(NamedTuple):
    """One row for the view: `values` by its own column names, without absent ones."""

    number: int
    raw: bytes
    values: Mapping[str, str]


class Refused(NamedTuple):
    """A record that can't be a row, by its number, or the message as a whole: WHOLE."""

    number: int
    reason: str
    text: str
    raw: bytes


class Decoded(NamedTuple):
    """The contents of a message; `ignored` counts the keys for which the view has no column."""

    rows: tuple[Row, ...]
    bad: tuple[Refused, ...]
    ignored: Mapping[str, int]


def read(
    message: Message,
    columns: Sequence[str] = (),
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
) -> Reading:
    """The records of a message, by its format and content type, with our keys.

    Raises:
        MessageRefused: it is above a limit, or its headers make no sense.
    """
    if len(message.body) > limits.max_message_bytes:
        text = f"{len(message.body)} bytes, above max_message_bytes = {limits.max_message_bytes}"
        raise MessageRefused("too-large", text)
    most = limits.max_records
    headers = message.headers
    renames = renames_of(message) if RENAME in headers else NO_RENAMES
    if FORMAT in headers and format_of(message) == NSTREAM:
        known = built_in(message.message_class)
        return read_nstream(message.body, message_class=known, renames=renames, max_records=most)
    if message.is_json:
        return read_json(message.body, renames=renames, max_records=most)
    return read_wlcg(
        message.body,
        message_class=built_in(message.message_class),
        columns=columns,
        record_count=message.record_count,
        renames=renames,
        max_records=most,
    )


def decode(
    message: Message,
    columns: Sequence[str],
    now: datetime,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
    times: Mapping[str, str] = NO_TIMES,
) -> Decoded:
    """The rows of a message for a view with these columns; `times`: see normalise."""
    column_of = _columns(tuple(columns))
    class_name, headers = message.message_class or "", message.headers
    rows: list[Row] = []
    bad: list[Refused] = []
    ignored: dict[str, int] = {}
    try:
        for number, record in enumerate(read(message, columns, limits), 1):
            if isinstance(record, BadRecord):
                bad.append(Refused(number, record.reason, record.text, record.raw))
                continue
            try:
                normalised = normalise(record.fields, class_name, headers, now, limits, times)
            except MessageRefused:
                raise
            except RecordRefused as error:
                bad.append(Refused(number, error.reason, error.text, record.raw))
                continue
            for row in normalised:
                try:
                    values = {column_of[key]: value for key, value in row.items()}
                except KeyError:  # in another case, or without a column
                    columns_of_row = ((_column(key, column_of), row[key]) for key in row)
                    values = {column: value for column, value in columns_of_row if column}
                rows.append(Row(number, record.raw, values))
            if len(rows) > limits.max_records:  # a record is a row for each flavour it lists
                raise too_many(limits.max_records)
            if len(values) < len(row):
                for key, value in record.fields.items():
                    if value and not _column(key, column_of):
                        key = key[:LONGEST_KEY]
                        ignored[key] = ignored.get(key, 0) + 1
    except MessageRefused as error:
        return Decoded((), (Refused(WHOLE, error.reason, error.text, message.body),), {})
    return Decoded(tuple(rows), tuple(bad), ignored)


@lru_cache(maxsize=100)
def _columns(columns: tuple[str, ...]) -> dict[str, str]:
    """The column of a key in lower case, in the view's spelling or in ours."""
    names = Names(columns)
    return dict(names) | {key: names[key] for key in KNOWN_KEYS.values() if names[key]}


def _column(key: str, column_of: Mapping[str, str]) -> str | None:
    return column_of.get(key) or column_of.get(key.lower())
