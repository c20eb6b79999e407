"""The transaction of a loader: repeated once, alone, after a collision with another one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine, text

from sam_pipeline.sql.database.engine import name_of, write_transaction
from sam_pipeline.sql.errors import DATABASE_ERRORS, away, is_collision, message_of

T = TypeVar("T")

logger = logging.getLogger(__name__)


def load_transaction(engine: Engine, action: Callable[[Connection], T]) -> T:
    """The result of `action`, which may be called twice; on return it is committed.

    Raises:
        DatabaseAway: nothing was committed; try again later.
    """
    try:
        try:
            return _once(engine, action)
        except DATABASE_ERRORS as error:
            if not is_collision(error):
                raise
            logger.info("collided with another loader, trying again: %s", message_of(error))
        return _once(engine, action, alone=True)
    except DATABASE_ERRORS as error:
        # The next answer may come from another server: a session with one that has become
        # read-only, or with a file that was moved away, would stay as it is for ever.
        engine.dispose()
        raise away(error, name_of(engine)) from error


def _once(engine: Engine, action: Callable[[Connection], T], alone: bool = False) -> T:
    with write_transaction(engine) as connection:
        if connection.dialect.name == "postgresql":
            # A constraint that a site's own class defers to the commit would look like a database
            # that is away: the whole batch would fail, for ever.
            connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
            if alone:  # before we write anything we may wait for others who create names
                connection.execute(text("SELECT lock_names()"))
        return action(connection)
