"""Decodes a message into the rows of its class and the records that can never be loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from sam_pipeline.schema.errors import MessageRefused, RecordRefused
from sam_pipeline.schema.messages.foreign import FORMAT, NSTREAM, RENAME, format_of, parse_renames
from sam_pipeline.schema.messages.message import Message, made_at
from sam_pipeline.schema.records.classes import STATEMENTS, built_in, column_names
from sam_pipeline.schema.records.json_form import read_json
from sam_pipeline.schema.records.normalise import NO_TIMES, Limits, normalise
from sam_pipeline.schema.records.nstream import read_nstream
from sam_pipeline.schema.records.text import NO_RENAMES, BadRecord, Reading, read_wlcg, too_many

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
    message_class = built_in(message.message_class)
    if FORMAT in headers and format_of(message) == NSTREAM:
        return read_nstream(
            body, message_class=message_class, renames=renames, max_records=max_records
        )
    if message.is_json:
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
    class_name, headers = message.message_class or "", message.headers
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
