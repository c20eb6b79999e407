"""The transaction of a loader, which is retried after a conflict with another one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine, text

from sam_pipeline.sql.database.engine import name_of, write_transaction
from sam_pipeline.sql.errors import DATABASE_ERRORS, away, is_collision, message_of

T = TypeVar("T")

ATTEMPTS = 4
"""In a conflict the server may choose the same loader again, although rarely."""

logger = logging.getLogger(__name__)


def load_transaction(engine: Engine, action: Callable[[Connection], T]) -> T:
    """Run `action` in a transaction, again after a conflict, commit, and return its result.

    Raises:
        DatabaseAway: nothing was committed; try again later.
    """
    try:
        for attempt in range(1, ATTEMPTS):
            try:
                return _once(engine, action, alone=attempt > 1)
            except DATABASE_ERRORS as error:
                if not is_collision(error):
                    raise
                logger.info("conflict with another loader, retrying: %s", message_of(error))
        return _once(engine, action, alone=True)
    except DATABASE_ERRORS as error:
        # Reconnect the next time: a session stays with a server that has become read-only, or with
        # a file that was moved away, even if the URL leads to another one now.
        engine.dispose()
        raise away(error, name_of(engine)) from error


def _once(engine: Engine, action: Callable[[Connection], T], alone: bool = False) -> T:
    with write_transaction(engine) as connection:
        if connection.dialect.name == "postgresql":
            # If a custom class defers a constraint to the commit, a violation would fail the
            # whole batch, on every attempt.
            connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
            if alone:  # we have written nothing yet, so this wait can't deadlock
                connection.execute(text("SELECT lock_names()"))
        return action(connection)
