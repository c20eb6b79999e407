"""The horizon: the first day of which all results are there, once results have been pruned."""

from __future__ import annotations

from datetime import date

from sqlalchemy import Connection, Engine, text

from sam_pipeline.sql.database.engine import reading, writing

# PostgreSQL. Two prunes at once: the second reads the horizon when the first has moved it. And
# all who mark days lock them in their order: in another one we would deadlock.
_LOCK = text("LOCK TABLE horizon IN SHARE ROW EXCLUSIVE MODE")
_LOCK_CHANGES = text("SELECT FROM changed_day WHERE day < :day ORDER BY day FOR UPDATE")
_READ = text("SELECT max(day) FROM horizon")
_FORGET = text("DELETE FROM horizon")
_SET = text("INSERT INTO horizon (day) VALUES (:day)")
_FORGET_CHANGES = text("DELETE FROM changed_day WHERE day < :day")


def read_horizon(engine: Engine) -> date | None:
    with reading(engine) as connection:
        return _horizon(connection)


def move_horizon(engine: Engine, day: date) -> date:
    """Move the horizon on to this day, never back; where it is then.

    Changes of days before it make no report due any more: they are forgotten.
    """
    with writing(engine) as connection:
        on_postgresql = connection.dialect.name == "postgresql"
        if on_postgresql:
            connection.execute(_LOCK)
        before = _horizon(connection)
        horizon = max(before or day, day)
        if horizon != before:
            connection.execute(_FORGET)
            connection.execute(_SET, {"day": str(horizon)})
        if on_postgresql:
            connection.execute(_LOCK_CHANGES, {"day": str(horizon)})
        connection.execute(_FORGET_CHANGES, {"day": str(horizon)})
        return horizon


def _horizon(connection: Connection) -> date | None:
    found = connection.scalar(_READ)
    return None if found is None else date.fromisoformat(str(found))
