"""Brings current statuses and due days up to date with the results loaded.

A batch only queues its changes for this: on PostgreSQL because batches that update the same rows
would wait for each other, on SQLite because a set costs a fraction of single rows. The loaders fold
the queued changes in about once a second. On SQLite the views also show those not yet folded.
"""

from __future__ import annotations

from sqlalchemy import Connection, Engine, text

from sam_pipeline.sql.database.engine import load_transaction, reading, writing

MAX_RESULTS = 10_000
"""The results of one fold on SQLite, where other writers wait for its end."""

_FOLD = text("SELECT fold_news()")
_NUMBER_CHANGES = text("SELECT take_changes()")

# SQLite.
_UNFOLDED = text("SELECT count(*) FROM (SELECT 1 FROM unfolded_result LIMIT :at_most)")
_FOLD_SQLITE = text("INSERT INTO fold_news (at_most) VALUES (:at_most)")
_NEXT_NUMBER = text("UPDATE change_counter SET change_no = change_no + 1 RETURNING change_no")
_NUMBER_DAYS = text("""
    UPDATE changed_day SET change_no = :number, results_no = coalesce(results_no, :number)
    WHERE change_no IS NULL
""")


def fold(engine: Engine) -> int:
    """Fold some batches (SQLite: results) into current_status and the due days.

    Returns their number, or 0 while another loader folds. Raises DatabaseAway.
    """
    if engine.dialect.name == "postgresql":
        return load_transaction(
            engine, lambda connection: int(connection.execute(_FOLD).scalar_one())
        )
    with reading(engine) as connection:
        unfolded = int(connection.execute(_UNFOLDED, {"at_most": MAX_RESULTS}).scalar_one())
    if unfolded:  # otherwise the only write lock is left to others
        with writing(engine) as connection:
            connection.execute(_FOLD_SQLITE, {"at_most": MAX_RESULTS})
    return unfolded


def fold_all(engine: Engine) -> None:
    """Fold everything that was loaded, unless another loader does; raises DatabaseAway."""
    while fold(engine):
        pass


def fold_here(connection: Connection) -> None:
    """Fold everything that was loaded, in the caller's transaction, unless another loader does."""
    if connection.dialect.name == "postgresql":
        while connection.execute(_FOLD).scalar_one():
            pass
    else:
        connection.execute(_FOLD_SQLITE, {"at_most": None})


def take_changes(connection: Connection) -> int:
    """Number the changes that a report run is going to read; returns the number, which is unique.

    Commit before reading anything.
    """
    if connection.dialect.name == "postgresql":
        return int(connection.execute(_NUMBER_CHANGES).scalar_one())
    connection.execute(_FOLD_SQLITE, {"at_most": None})
    number = int(connection.execute(_NEXT_NUMBER).scalar_one())
    connection.execute(_NUMBER_DAYS, {"number": number})
    return number
