"""Load a batch of messages: rows into views, the rest into dead letters, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine

from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.database.transaction import load_transaction
from sam_pipeline.sql.loading.audit import Audit, write_audit
from sam_pipeline.sql.loading.batch import CLASS_BROKEN, RecordFailure, read_batch
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.dead_letter import keep
from sam_pipeline.sql.loading.insert import insert_batch


@dataclass(frozen=True)
class Loaded:
    """What became of a batch.

    `rows_by_class`: rows stored, now or before. `dead_letters`: new ones, by reason. `checks`:
    messages that only prove a path. `ignored_keys`: how often a key had no column.
    """

    rows_by_class: Mapping[str, int]
    dead_letters: Mapping[str, int]
    checks: int
    ignored_keys: Mapping[str, int]

    @property
    def rows(self) -> int:
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
    before_commit: Callable[[Connection, Sequence[RecordFailure]], None] | None = None,
) -> Loaded:
    """Store everything and commit: on return the messages can be acked.

    Messages whose ids are in `poison` are not decoded, only stored as dead letters. With an `audit`
    the batch leaves its row in `load_audit`. `before_commit` gets the records that failed, and
    undoes the batch if it raises.

    Raises:
        DatabaseAway: nothing was committed; try again later.
    """
    batch = read_batch(catalogue, messages, now, limits, poison)

    def action(connection: Connection) -> Loaded:
        inserted = insert_batch(connection, batch)
        new_letters = keep(connection, inserted.failures, now)
        if audit is not None:
            write_audit(
                connection,
                audit,
                messages=len(messages),
                rows=inserted.rows,
                dead_letters=sum(new_letters.values()),
                checks=batch.checks,
            )
        if before_commit is not None:
            before_commit(connection, inserted.failures)
        return Loaded(inserted.rows_by_class, new_letters, batch.checks, batch.ignored_keys)

    loaded = load_transaction(engine, action)
    if CLASS_BROKEN in loaded.dead_letters:
        catalogue.forget()
    return loaded
