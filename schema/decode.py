"""From a message to the rows of its class, and the records of it that can never be one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from schema.classes import built_in
from schema.errors import RecordRefused
from schema.json_record import read_json
from schema.message import Message
from schema.normalise import Limits, normalise
from schema.record import BadRecord, Reading, Record, read_wlcg


@dataclass(frozen=True)
class Row:
    """One row for the view: `values` by the view's own column names, absent ones left out."""

    number: int
    raw: bytes
    values: Mapping[str, str]


@dataclass(frozen=True)
class Refused:
    """A record of the message that can't be a row, by its number from 1."""

    number: int
    reason: str
    text: str
    raw: bytes


@dataclass(frozen=True)
class Decoded:
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
) -> Decoded:
    """The rows of a message for a view with these columns."""
    spelling = {column.lower(): column for column in columns}
    rows: list[Row] = []
    bad: list[Refused] = []
    ignored: Counter[str] = Counter()
    for number, record in enumerate(read(message, columns), 1):
        if isinstance(record, BadRecord):
            bad.append(Refused(number, record.reason, record.text, record.raw))
            continue
        try:
            found = normalise(
                record.fields, message.message_class or "", message.headers, now, limits
            )
        except RecordRefused as error:
            bad.append(Refused(number, error.reason, error.text, record.raw))
            continue
        ignored.update(key for key in record.fields if key.lower() not in spelling)
        rows.extend(Row(number, record.raw, _by_column(row, spelling)) for row in found)
    return Decoded(tuple(rows), tuple(bad), ignored)


def _by_column(row: Record, spelling: Mapping[str, str]) -> dict[str, str]:
    return {spelling[key.lower()]: value for key, value in row.items() if key.lower() in spelling}
