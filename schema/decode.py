"""From a message to the rows of its class, and the records of it that can never be one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from schema.classes import KNOWN_KEYS, Names, built_in
from schema.errors import RecordRefused
from schema.json_record import read_json
from schema.message import Message
from schema.normalise import NO_TIMES, Limits, normalise
from schema.record import BadRecord, Reading, Record, read_wlcg


class Row(NamedTuple):
    """One row for the view: `values` by the view's own column names, absent ones left out."""

    number: int
    raw: bytes
    values: Mapping[str, str]


class Refused(NamedTuple):
    """A record of the message that can't be a row, by its number from 1."""

    number: int
    reason: str
    text: str
    raw: bytes


class Decoded(NamedTuple):
    """What a message holds; `ignored` counts the keys for which the view has no column."""

    rows: tuple[Row, ...]
    bad: tuple[Refused, ...]
    ignored: Mapping[str, int]


def read(message: Message, columns: Sequence[str] = ()) -> Reading:
    """The records of a message, by its content type."""
    if message.is_json:
        return read_json(message.body)
    return read_wlcg(
        message.body,
        message_class=built_in(message.message_class),
        columns=columns,
        record_count=message.record_count,
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
    for number, record in enumerate(read(message, columns), 1):
        if isinstance(record, BadRecord):
            bad.append(Refused(number, record.reason, record.text, record.raw))
            continue
        try:
            found = normalise(record.fields, class_name, headers, now, limits, times)
        except RecordRefused as error:
            bad.append(Refused(number, error.reason, error.text, record.raw))
            continue
        for row in found:
            values = _by_column(row, column_of)
            rows.append(Row(number, record.raw, values))
        if len(values) < len(row):
            _count_ignored(record.fields, column_of, ignored)
    return Decoded(tuple(rows), tuple(bad), ignored)


@lru_cache(maxsize=100)
def _columns(columns: tuple[str, ...]) -> dict[str, str]:
    """The column of a key in lower case, in the view's spelling or in ours."""
    names = Names(columns)
    return dict(names) | {key: names[key] for key in KNOWN_KEYS.values() if names[key]}


def _column(key: str, column_of: Mapping[str, str]) -> str | None:
    return column_of.get(key) or column_of.get(key.lower())


def _by_column(row: Record, column_of: Mapping[str, str]) -> Record:
    try:
        return {column_of[key]: value for key, value in row.items()}
    except KeyError:
        placed = ((_column(key, column_of), value) for key, value in row.items())
        return {column: value for column, value in placed if column}


def _count_ignored(fields: Record, column_of: Mapping[str, str], ignored: dict[str, int]) -> None:
    for key, value in fields.items():
        if value and not _column(key, column_of):
            ignored[key] = ignored.get(key, 0) + 1
