"""Load a batch of messages: rows into views, the rest into dead letters, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection, Engine

from schema.message import Message
from schema.normalise import Limits
from sql.batch import CLASS_BROKEN, Batch, read_batch
from sql.catalogue import Catalogue
from sql.dead_letter import keep
from sql.insert import insert_batch
from sql.transaction import load_transaction


@dataclass(frozen=True)
class Loaded:
    """What became of a batch.

    `rows` were stored, or were there already; `dead_letters` are the new ones by reason, `checks`
    the messages that only prove a path, `ignored_keys` how often a key had no column.
    """

    rows: int
    dead_letters: Mapping[str, int]
    checks: int
    ignored_keys: Mapping[str, int]
    rows_by_class: Mapping[str, int] = field(default_factory=dict)


def load(
    engine: Engine,
    catalogue: Catalogue,
    messages: Sequence[Message],
    now: datetime,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
) -> Loaded:
    """Store everything and commit: on return the messages can be acked.

    Raises:
        DatabaseAway: nothing was committed; the same again later.
    """
    batch = read_batch(catalogue, messages, now, limits)
    loaded = load_transaction(engine, lambda connection: _load(connection, batch, now))
    if CLASS_BROKEN in loaded.dead_letters:
        catalogue.forget()
    return loaded


def _load(connection: Connection, batch: Batch, now: datetime) -> Loaded:
    inserted = insert_batch(connection, batch)
    kept = keep(connection, inserted.failures, now)
    by_class = inserted.rows_by_class
    return Loaded(inserted.rows, kept, batch.checks, batch.ignored_keys, by_class)
