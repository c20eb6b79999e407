"""What was loaded makes statuses newer and reports due: keeps both up to it.

On SQLite the triggers do so at once. On PostgreSQL a batch only notes what it stored, as batches
that kept the same rows would wait for each other; somebody folds these notes in, the loaders
about once a second.
"""

from __future__ import annotations

from sqlalchemy import Connection, Engine, text

from sql.transaction import load_transaction

_FOLD = text("SELECT fold_news()")
_TAKE = text("SELECT take_changes()")
_COUNT = text("UPDATE change_counter SET change_no = change_no + 1 RETURNING change_no")
_NUMBER = text("UPDATE changed_day SET change_no = :number WHERE change_no IS NULL")


def fold(engine: Engine) -> int:
    """Bring current_status and the changed days up to some more batches; how many these were.

    Raises:
        DatabaseAway
    """
    if engine.dialect.name == "sqlite":
        return 0
    return load_transaction(engine, lambda found: int(found.execute(_FOLD).scalar_one()))


def fold_all(engine: Engine) -> None:
    """Bring both up to everything that was loaded, unless another loader is just doing so.

    Raises:
        DatabaseAway
    """
    while fold(engine):
        pass


def take_changes(connection: Connection) -> int:
    """Number the changes that a run of a report is going to read; the number, never given again.

    To be committed before anything is read.
    """
    if connection.dialect.name == "postgresql":
        return int(connection.execute(_TAKE).scalar_one())
    number = int(connection.execute(_COUNT).scalar_one())
    connection.execute(_NUMBER, {"number": number})
    return number
