"""A batch of decoded messages: the rows to insert by view, and the records that failed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from sam_pipeline.schema.messages.decode import WHOLE, Row
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.sql.loading.catalogue import ClassView

UNKNOWN_CLASS = "unknown-class"
CLASS_BROKEN = "class-broken"
REFUSED = "refused-by-database"
POISON = "poison"
MIXED = "mixed"
FLOOD = "flood"
REASONS = {
    UNKNOWN_CLASS: (
        "the message names no class, or there is no view of that name",
        "set `class` in the subscription or [create the class](new-class.md), then replay",
    ),
    CLASS_BROKEN: (
        "the view, the trigger or a grant of the class does not work",
        "fix it; the daemon replays these letters by itself",
    ),
    REFUSED: (
        "a trigger or a constraint refused the record",
        "the error names column and SQLSTATE: edit it, or ask the sender",
    ),
    POISON: (
        "the process died four times with the message in memory",
        "replay it, which runs in a separate process",
    ),
    MIXED: (
        "more than 20 records of the message were refused, for different reasons",
        "`show` lists the first 20: edit it, or ask the sender",
    ),
    FLOOD: (
        "a sender exceeded a limit of dead letters per hour; the others are counted and not stored",
        "ask the sender to send the data again, then drop it; it cannot be edited or replayed",
    ),
}
"""The reasons that depend on the database; `schema.records.reasons` has the others."""


@dataclass(frozen=True)
class RecordFailure:
    """A record, or a whole message, that can't be loaded and becomes a dead letter.

    One may stand for several `records` of its message with the same reason.
    """

    message: Message
    number: int
    reason: str
    text: str
    body: bytes
    records: int = 1


class PendingRow(NamedTuple):
    """A row to insert, and the message it came in."""

    message: Message
    message_id: str
    row: Row


@dataclass
class ViewBatch:
    """The messages of one class: their rows, and their records that could not be decoded."""

    view: ClassView
    messages: list[Message] = field(default_factory=list)
    rows: list[PendingRow] = field(default_factory=list)
    undecodable: list[RecordFailure] = field(default_factory=list)


@dataclass
class Batch:
    """The messages of a batch by the name of their view.

    `failures` are messages without a usable view, or poison. `checks` counts messages that only
    test the path, `ignored_keys` the keys for which a view has no column.
    """

    by_view: dict[str, ViewBatch] = field(default_factory=dict)
    failures: list[RecordFailure] = field(default_factory=list)
    checks: int = 0
    ignored_keys: Counter[str] = field(default_factory=Counter)


def whole_message(message: Message, reason: str, text: str) -> RecordFailure:
    """The failure of a message as a whole."""
    return RecordFailure(message, WHOLE, reason, text, message.body)
