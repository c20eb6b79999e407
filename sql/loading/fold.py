"""Newest statuses and due days, brought up to the results that were loaded.

A batch only notes what it stored: on PostgreSQL because batches that update the same rows would
wait for each other, on SQLite because a set costs a fraction of single rows. The loaders fold these
notes in about once a second. On SQLite the views also show what is not folded yet.
"""

from __future__ import annotations

from sqlalchemy import Connection, Engine, text

from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.database.transaction import load_transaction

AT_MOST = 10_000
"""How many results one fold takes on SQLite, where others wait for it to end."""

_FOLD = text("SELECT fold_news()")
_TAKE = text("SELECT take_changes()")

# SQLite.
_NEWS = text("SELECT count(*) FROM (SELECT 1 FROM unfolded_result LIMIT :at_most)")
_FOLD_SOME = text("INSERT INTO fold_news (at_most) VALUES (:at_most)")
_COUNT = text("UPDATE change_counter SET change_no = change_no + 1 RETURNING change_no")
_NUMBER = text("UPDATE changed_day SET change_no = :number WHERE change_no IS NULL")


def fold(engine: Engine) -> int:
    """Bring current_status and the due days up to some more batches (SQLite: results).

    Returns their number; 0 also while another loader folds.

    Raises:
        DatabaseAway
    """
    if engine.dialect.name == "postgresql":
        return load_transaction(
            engine, lambda connection: int(connection.execute(_FOLD).scalar_one())
        )
    with reading(engine) as connection:
        unfolded = int(connection.execute(_NEWS, {"at_most": AT_MOST}).scalar_one())
    if unfolded:  # else the one write lock is left to others
        with writing(engine) as connection:
            connection.execute(_FOLD_SOME, {"at_most": AT_MOST})
    return unfolded


def fold_all(engine: Engine) -> None:
    """Bring both up to everything that was loaded, unless another loader is doing so.

    Raises:
        DatabaseAway
    """
    while fold(engine):
        pass


def take_changes(connection: Connection) -> int:
    """Number the changes that a run of a report is going to read; the number, never used again.

    To be committed before anything is read.
    """
    if connection.dialect.name == "postgresql":
        return int(connection.execute(_TAKE).scalar_one())
    connection.execute(_FOLD_SOME, {"at_most": None})
    number = int(connection.execute(_COUNT).scalar_one())
    connection.execute(_NUMBER, {"number": number})
    return number
