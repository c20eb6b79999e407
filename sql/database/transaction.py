"""The transaction of a loader: repeated once, alone, if it got in the way of another one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine, text

from sam_pipeline.sql.database.engine import name_of, write_transaction
from sam_pipeline.sql.errors import DATABASE_ERRORS, away, is_collision, words_of

T = TypeVar("T")

logger = logging.getLogger(__name__)


def load_transaction(engine: Engine, action: Callable[[Connection], T]) -> T:
    """What `action` gives; on return it is committed. It may be called twice.

    Raises:
        DatabaseAway: nothing was committed; the same again later.
    """
    try:
        return _try_twice(engine, action)
    except DATABASE_ERRORS as error:
        # What answers next may be another server: a session with one that has become read-only,
        # or with a file that was moved away, would stay as it is for ever.
        engine.dispose()
        raise away(error, name_of(engine)) from error


def _try_twice(engine: Engine, action: Callable[[Connection], T]) -> T:
    try:
        return _once(engine, action)
    except DATABASE_ERRORS as error:
        if not is_collision(error):
            raise
        logger.info("in another loader's way, again: %s", words_of(error))
    return _once(engine, action, alone=True)


def _once(engine: Engine, action: Callable[[Connection], T], alone: bool = False) -> T:
    with write_transaction(engine) as connection:
        if connection.dialect.name == "postgresql":
            # A constraint that a site's own class defers to the commit could not be told from a
            # database that is away: the whole batch would fail, for ever.
            connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
            if alone:  # before anything is written we may wait for others who create names
                connection.execute(text("SELECT lock_names()"))
        return action(connection)
