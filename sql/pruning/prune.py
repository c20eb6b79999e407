"""Remove whole UTC days of results, details, audit and settled dead letters, each at its own age.

The horizon, the first day whose results are complete, moves first: reports of earlier days are
frozen, so none is computed from half a day. The last pruned day, the one before the horizon, keeps
the newest result of each instance, because the next day's report starts from it. No day is marked
as changed.

Every step is a short transaction that can be repeated, so the next prune completes one that was
killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date

from sqlalchemy import Engine, text

from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.pruning import postgresql as prune_postgresql
from sam_pipeline.sql.pruning import sqlite as prune_sqlite
from sam_pipeline.sql.pruning.request import Bounds, Pruned, PruneRequest

# PostgreSQL. Of two concurrent prunes the second reads the horizon after the first has moved it.
# Changed days are locked in the order in which loaders lock them; any other order could deadlock.
_LOCK = text("LOCK TABLE horizon IN SHARE ROW EXCLUSIVE MODE")
_LOCK_CHANGES = text("SELECT FROM changed_day WHERE day < :day ORDER BY day FOR UPDATE")
_READ = text("SELECT max(day) FROM horizon")
_DELETE = text("DELETE FROM horizon")
_INSERT = text("INSERT INTO horizon (day) VALUES (:day)")
_DELETE_CHANGES = text("DELETE FROM changed_day WHERE day < :day")


def prune(
    engine: Engine,
    bounds: Bounds,
    *,
    dry_run: bool = False,
    on_progress: Callable[[str], None] = lambda line: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Pruned:
    """Remove everything before the bounds; `on_progress` gets a line of text after each step.

    Raises:
        DatabaseRefused: only the owner of the tables may prune.
        DatabaseAway: what was removed so far is committed; prune again later.
    """
    horizon = bounds.results and _move_horizon(engine, bounds.results, dry_run)
    request = PruneRequest(engine, bounds, horizon, dry_run, on_progress, sleep)
    if engine.dialect.name == "sqlite":
        return prune_sqlite.prune(request)
    return prune_postgresql.prune(request)


def _move_horizon(engine: Engine, day: date, dry_run: bool) -> date:
    """Move the horizon forward to `day`, never back; the new one, which a dry run only computes.

    Changes of days before it are deleted: they no longer make a report due.
    """
    with reading(engine) if dry_run else writing(engine) as connection:
        on_postgresql = connection.dialect.name == "postgresql"
        if on_postgresql and not dry_run:
            connection.execute(_LOCK)
        stored = connection.scalar(_READ)
        horizon = day if stored is None else max(date.fromisoformat(str(stored)), day)
        if dry_run:
            return horizon
        values = {"day": str(horizon)}
        if str(stored) != str(horizon):
            connection.execute(_DELETE)
            connection.execute(_INSERT, values)
        if on_postgresql:
            connection.execute(_LOCK_CHANGES, values)
        connection.execute(_DELETE_CHANGES, values)
        return horizon
