"""Load a batch of messages: rows into views, the rest into dead letters, in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine, text

from schema.message import Message
from schema.normalise import Limits
from sql.batch import CLASS_BROKEN, Batch, read_batch
from sql.catalogue import Catalogue
from sql.dead_letter import keep
from sql.engine import name_of, write_transaction
from sql.errors import DRIVER_ERRORS, away, is_deadlock, words_of
from sql.insert import insert_batch

TRIES = 5
"""Loaders that met in a deadlock, though everything is done to avoid it, hardly meet again."""

logger = logging.getLogger(__name__)


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
    try:
        loaded = _load(engine, batch, now)
    except DRIVER_ERRORS as error:
        raise away(error, name_of(engine)) from error
    if CLASS_BROKEN in loaded.dead_letters:
        catalogue.forget()
    return loaded


def _load(engine: Engine, batch: Batch, now: datetime) -> Loaded:
    for _ in range(TRIES - 1):
        try:
            return _load_once(engine, batch, now)
        except DRIVER_ERRORS as error:
            if not is_deadlock(error):
                raise
            logger.info("in another loader's way, again: %s", words_of(error))
    return _load_once(engine, batch, now)


def _load_once(engine: Engine, batch: Batch, now: datetime) -> Loaded:
    with write_transaction(engine) as connection:
        if connection.dialect.name == "postgresql":
            # A constraint that a site's own class defers to the commit could not be told from
            # a database that is away: the whole batch would fail, for ever.
            connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
        inserted = insert_batch(connection, batch)
        kept = keep(connection, inserted.failures, now)
    return Loaded(inserted.rows, kept, batch.checks, batch.ignored_keys)
