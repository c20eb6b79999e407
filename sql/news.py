"""What follows from stored results and topology: the newest statuses, and the days that changed."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, text

from sql.engine import writing

# One statement after the other, in the caller's transaction; SQLite has no functions.
_NUMBER = text("""
    UPDATE changed_day
    SET change_no = 1 + coalesce((SELECT max(change_no) FROM changed_day), 0)
    WHERE change_no IS NULL
""")
_NEWEST = text("SELECT coalesce(max(change_no), 0) FROM changed_day")


def fold(engine: Engine) -> None:
    """Bring current_status and changed_day up to what is stored.

    On SQLite they always are: its one writer keeps them with each row.

    Raises:
        DatabaseAway: it can't be asked.
    """
    if engine.dialect.name == "postgresql":
        with writing(engine) as connection:
            connection.execute(text("SELECT fold_news()"))


def take_changes(connection: Connection) -> int:
    """Number the days that changed since the last call; the newest number, 0 if there is none.

    A run that stores this number has read every change up to it, if it reads after the commit.
    """
    if connection.dialect.name == "postgresql":
        return int(connection.execute(text("SELECT take_changes()")).scalar_one())
    connection.execute(_NUMBER)
    return int(connection.execute(_NEWEST).scalar_one())
