"""Load a batch of messages: rows into views, all other records into dead letters, then commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine

from sam_pipeline.schema.messages.decode_cache import decode_cached
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.messages.refused import REFUSED, refusal_of
from sam_pipeline.schema.records.classes import CHECK_CLASS, built_in, folded
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.database.transaction import load_transaction
from sam_pipeline.sql.loading.audit import Audit, write_audit
from sam_pipeline.sql.loading.batch import (
    CLASS_BROKEN,
    POISON,
    UNKNOWN_CLASS,
    Batch,
    PendingRow,
    RecordFailure,
    ViewBatch,
    whole_message,
)
from sam_pipeline.sql.loading.catalogue import Catalogue, ClassView
from sam_pipeline.sql.loading.dead_letter_store import store_dead_letters
from sam_pipeline.sql.loading.insert import insert_batch
from sam_pipeline.sql.loading.letter_quota import Ration

POISON_TEXT = (
    "the consumer died repeatedly while it loaded this message, so it was not decoded;"
    " a replay decodes it"
)


@dataclass(frozen=True)
class Loaded:
    """The outcome of a batch.

    `rows_by_class`: rows stored, now or before. `dead_letters`: new ones, by reason. `checks`:
    messages that only test the path. `ignored_keys`: how often a key had no column.
    `repeated_dead_letters`: letters that were stored before. `summarised_dead_letters`: letters
    beyond a limit, which are only counted in a summary.
    """

    rows_by_class: Mapping[str, int]
    dead_letters: Mapping[str, int]
    checks: int
    ignored_keys: Mapping[str, int]
    repeated_dead_letters: int = 0
    summarised_dead_letters: int = 0

    @property
    def rows(self) -> int:
        """The rows of all classes."""
        return sum(self.rows_by_class.values())


def load(
    engine: Engine,
    catalogue: Catalogue,
    messages: Sequence[Message],
    now: datetime,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
    *,
    audit: Audit | None = None,
    poison: Collection[str] = (),
    decoding: Callable[[], AbstractContextManager[object]] = nullcontext,
    ration: Callable[[datetime], Ration] | None = None,
    before_commit: Callable[[Connection, Sequence[RecordFailure]], None] | None = None,
) -> Loaded:
    """Store everything and commit: on return the messages can be acked.

    Messages whose ids are in `poison` become dead letters without being decoded; all others are
    decoded inside a block of `decoding`, to which a crash can be attributed. With an `audit`
    the batch adds a row to `load_audit`. `ration`, called with the time, limits the dead letters of
    one transaction. `before_commit` gets the records that failed; if it raises, the batch is rolled
    back.

    Raises:
        DatabaseAway: nothing was committed; try again later.
    """
    with decoding():
        batch = decode_batch(catalogue, messages, now, limits, poison)

    def insert_everything(connection: Connection) -> tuple[Loaded, Ration | None]:
        inserted = insert_batch(connection, batch)
        used = ration(now) if ration and inserted.failures else None
        letters = store_dead_letters(connection, inserted.failures, now, used)
        if audit is not None:
            write_audit(
                connection,
                audit,
                messages=len(messages),
                rows=inserted.rows,
                dead_letters=letters.new.total(),
                repeated_dead_letters=letters.repeated,
                summarised_dead_letters=letters.summarised,
                checks=batch.checks,
            )
        if before_commit is not None:
            before_commit(connection, inserted.failures)
        loaded = Loaded(
            inserted.rows_by_class,
            letters.new,
            batch.checks,
            batch.ignored_keys,
            letters.repeated,
            letters.summarised,
        )
        return loaded, used

    loaded, used = load_transaction(engine, insert_everything)
    if used:
        used.commit()
    if CLASS_BROKEN in loaded.dead_letters:
        catalogue.forget()
    return loaded


def decode_batch(
    catalogue: Catalogue,
    messages: Sequence[Message],
    now: datetime,
    limits: Limits,
    poison: Collection[str] = (),
) -> Batch:
    """The messages decoded for the views of their classes; one whose id is in `poison` fails."""
    batch = Batch()
    names = [folded(message.message_class or "") for message in messages]
    views = catalogue.find_all(set(names) - {CHECK_CLASS})
    for message, name in zip(messages, names, strict=True):
        view = views.get(name)
        if poison and message.message_id in poison:
            batch.failures.append(whole_message(message, POISON, POISON_TEXT))
        elif REFUSED in message.headers and (refusal := refusal_of(message)):
            batch.failures.append(whole_message(message, refusal.reason, refusal.text))
        elif name == CHECK_CLASS:
            batch.checks += 1
        elif view is None or view.problem:
            reason, text = _why_not_loaded(message.message_class, view)
            batch.failures.append(whole_message(message, reason, text))
        else:
            decoded = decode_cached(message, view.columns, now, limits, view.times)
            part = batch.by_view.get(view.name)
            if part is None:
                part = batch.by_view[view.name] = ViewBatch(view)
            message_id = message.message_id  # of a foreign message a hash: computed only once
            part.messages.append(message)
            part.rows += [PendingRow(message, message_id, row) for row in decoded.rows]
            part.undecodable += [RecordFailure(message, *refused) for refused in decoded.bad]
            if decoded.ignored:
                batch.ignored_keys.update(decoded.ignored)
    return batch


def _why_not_loaded(class_name: str | None, view: ClassView | None) -> tuple[str, str]:
    """Reason and text of the dead letter of a message whose class has no usable view."""
    if view is not None:
        return CLASS_BROKEN, f"{class_name}: {view.problem}"
    if built_in(class_name):
        text = f"{class_name}: the view or its INSTEAD OF INSERT trigger is missing (sam-db check)"
        return CLASS_BROKEN, text
    if class_name is None:
        return UNKNOWN_CLASS, "the message names no class"
    return UNKNOWN_CLASS, f"{class_name[:80]}: no view of that name with a trigger"
