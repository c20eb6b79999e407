"""A batch of decoded messages: the rows to insert by view, and the records that failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.decode import WHOLE, Row
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.sql.database.partitions import MAX_DAYS
from sam_pipeline.sql.loading.catalogue import ClassView

MAX_RECORDS = 10_000
"""Records that a transaction stores: the next one is begun within seconds."""
_TIME, _DATE = "timestamp", slice(len("2026-11-20"))

FILE, LINE = "importFile", "importLine"
"""Headers of a message that is a record of a file: the file, and the line of the record in it."""

UNKNOWN_CLASS = "unknown-class"
CLASS_BROKEN = "class-broken"
REFUSED = "refused-by-database"
POISON = "poison"
MIXED = "mixed"
FLOOD = "flood"
REASONS = {
    UNKNOWN_CLASS: (
        "the message names no class, or no view has that name",
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
    """A row to insert, the message it came in, and the identity of its sender."""

    message: Message
    message_id: str
    publisher: str
    row: Row


@dataclass
class ViewBatch:
    """The messages of one class: their rows, and their records that failed before the insertion."""

    view: ClassView
    messages: list[Message] = field(default_factory=list)
    rows: list[PendingRow] = field(default_factory=list)
    failures: list[RecordFailure] = field(default_factory=list)


@dataclass
class Batch:
    """Some messages by the name of their view; `size` is the number of all of them.

    `failures` are whole messages: without a usable view, without a signature, or poison. `counts`
    has what is known before the insertion: checks, ignored keys, and refusals of the policy. With a
    policy, `records` counts the rows by identity, and `observed` those that it would refuse if it
    enforced.
    `days` of metric results are set by `split_batch`.
    """

    by_view: dict[str, ViewBatch] = field(default_factory=dict)
    failures: list[RecordFailure] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    records: Counter[str] = field(default_factory=Counter)
    observed: Counter[str] = field(default_factory=Counter)
    size: int = 0
    days: frozenset[str] = frozenset()


def whole_message(message: Message, reason: str, text: str) -> RecordFailure:
    """The failure of a message as a whole."""
    return RecordFailure(message, WHOLE, reason, text, message.body)


def split_batch(batch: Batch) -> list[Batch]:
    """The batch, if a transaction may store all of its rows; otherwise several.

    The last one is the batch itself, with the last rows of each view and all failures.
    """
    pieces: list[Batch] = []
    for name, part in batch.by_view.items():
        days = _days(part)
        if len(part.rows) > MAX_RECORDS or len(days) > MAX_DAYS:
            *earlier, part.rows = _chunks(part.rows)
            for rows in earlier:
                messages = list({id(row.message): row.message for row in rows}.values())
                piece = ViewBatch(part.view, messages, rows)
                pieces.append(Batch({name: piece}, days=_days(piece)))
            days = _days(part)
        batch.days |= days
    return [*pieces, batch]


def _days(part: ViewBatch) -> frozenset[str]:
    """The UTC days, as YYYY-MM-DD, of the results of a class that is stored by day."""
    is_by_day = part.view.known is METRIC_OUTPUT and _TIME in part.view.columns
    if not is_by_day or not part.rows:
        return frozenset()
    times = [row.values[_TIME] for *_, row in part.rows]
    first, last = min(times)[_DATE], max(times)[_DATE]
    # Nearly always the same, which is faster to find out than all days.
    return frozenset({first} if first == last else {time[_DATE] for time in times})


def _chunks(rows: Sequence[PendingRow]) -> Iterator[list[PendingRow]]:
    """The rows by day, in lists that a transaction may store."""

    def day_of(pending: PendingRow) -> str:
        return pending.row.values.get(_TIME, "")[_DATE]

    chunk: list[PendingRow] = []
    days: set[str] = set()
    for pending in sorted(rows, key=day_of):
        days.add(day_of(pending))
        if len(chunk) == MAX_RECORDS or len(days) > MAX_DAYS:
            yield chunk
            chunk, days = [], {day_of(pending)}
        chunk.append(pending)
    yield chunk
