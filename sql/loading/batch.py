"""Messages decoded into rows by view, and into the dead letters that are certain beforehand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from sam_pipeline.schema.messages.decode import WHOLE, Decoded, Row
from sam_pipeline.schema.messages.decode_cache import recall
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.records.classes import CHECK_CLASS, built_in, folded
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.loading.catalogue import Catalogue, ClassView

UNKNOWN_CLASS = "unknown-class"
CLASS_BROKEN = "class-broken"
REFUSED = "refused-by-database"
POISON = "poison"
REASONS = {
    UNKNOWN_CLASS: (
        "no class, or no view of that name",
        "set `class` in the subscription or [make the class](new-class.md), then replay",
    ),
    CLASS_BROKEN: (
        "the view, trigger or grant of the class does not work",
        "fix it; the daemon replays by itself",
    ),
    REFUSED: (
        "a trigger or a constraint refused the record",
        "the error names column and SQLSTATE: edit it, or ask the sender",
    ),
    POISON: (
        "the process died four times with the message in memory",
        "replay it: that happens in a process of its own",
    ),
}
"""Those that depend on the database, beside the ones of `schema.records.reasons`."""

POISON_TEXT = (
    "the consumer died again and again while it loaded this message, so it was not decoded;"
    " a replay decodes it"
)


@dataclass(frozen=True)
class RecordFailure:
    """A record, or a whole message, that can't be loaded: a future dead letter."""

    message: Message
    number: int
    reason: str
    text: str
    body: bytes


class Pending(NamedTuple):
    """A row to be stored, and the message it came in."""

    message: Message
    message_id: str
    row: Row


@dataclass
class ViewBatch:
    """The messages of one class."""

    view: ClassView
    decoded: list[tuple[Message, Decoded]] = field(default_factory=list)

    def rows(self) -> list[Pending]:
        """In the order of the natural key: loaders of the same rows wait for each other if their
        order is the same, and deadlock if it is not."""
        pending: list[Pending] = []
        for message, decoded in self.decoded:
            message_id = message.message_id  # of a foreign message a hash: once for all its rows
            pending += [Pending(message, message_id, row) for row in decoded.rows]
        known = built_in(self.view.name)
        if known is None:
            return pending
        key_names = {key.lower() for key in known.natural_key}
        key = [column for column in self.view.columns if column.lower() in key_names]
        absent = [""] * len(key)
        return sorted(pending, key=lambda one: "\0".join(map(one.row.values.get, key, absent)))

    def refused(self) -> Iterator[RecordFailure]:
        """The records that can't be decoded."""
        for message, decoded in self.decoded:
            for bad in decoded.bad:
                yield RecordFailure(message, bad.number, bad.reason, bad.text, bad.raw)


@dataclass
class Batch:
    """Decoded messages: rows to be stored, failures, and the number of those that only prove a
    path."""

    by_view: dict[str, ViewBatch] = field(default_factory=dict)
    failures: list[RecordFailure] = field(default_factory=list)
    checks: int = 0
    ignored_keys: Counter[str] = field(default_factory=Counter)


def read_batch(
    catalogue: Catalogue,
    messages: Sequence[Message],
    now: datetime,
    limits: Limits,
    poison: Collection[str] = (),
) -> Batch:
    """Decode messages for the views of their classes; one whose id is in `poison` fails whole."""
    batch = Batch()
    names = [folded(message.message_class or "") for message in messages]
    views = catalogue.find_all(set(names) - {CHECK_CLASS})
    for message, name in zip(messages, names, strict=True):
        view = views.get(name)
        if poison and message.message_id in poison:
            batch.failures.append(whole(message, POISON, POISON_TEXT))
        elif name == CHECK_CLASS:
            batch.checks += 1
        elif view is None or view.problem:
            batch.failures.append(_without_view(message, view))
        else:
            decoded = recall(message, view.columns, now, limits, view.times)
            if view.name not in batch.by_view:
                batch.by_view[view.name] = ViewBatch(view)
            batch.by_view[view.name].decoded.append((message, decoded))
            if decoded.ignored:
                batch.ignored_keys.update(decoded.ignored)
    return batch


def whole(message: Message, reason: str, text: str) -> RecordFailure:
    return RecordFailure(message, WHOLE, reason, text, message.body)


def _without_view(message: Message, view: ClassView | None) -> RecordFailure:
    name = message.message_class
    if view is not None:
        return whole(message, CLASS_BROKEN, f"{name}: {view.problem}")
    if built_in(name):
        text = f"{name}: the view or its INSTEAD OF INSERT trigger is missing (sam-db check)"
        return whole(message, CLASS_BROKEN, text)
    if name is None:
        return whole(message, UNKNOWN_CLASS, "the message names no class")
    return whole(message, UNKNOWN_CLASS, f"{name[:80]}: no view of that name with a trigger")
