"""Removes whole UTC days of results, details, old statements, audit rows and settled dead letters.

A prune first moves the horizon, the first day whose results are complete. Reports of days before it
are frozen and never due, so that none is computed from part of a day. Each of the days just before
the horizon keeps the newest result of each instance, because the next reports start from it: as
many days as any published report looks back. Only statements that no longer hold are removed, and
only those from before the horizon.

Each step is a short transaction that can be repeated, so the next prune completes an interrupted
one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import date

from sqlalchemy import Engine, text

from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.operations.record import record_operation
from sam_pipeline.sql.removal.pruning import postgresql as prune_postgresql
from sam_pipeline.sql.removal.pruning import sqlite as prune_sqlite
from sam_pipeline.sql.removal.pruning.request import Bounds, Pruned, PruneRequest

# On PostgreSQL, the second of two concurrent prunes must read the horizon after the first has moved
# it, and changed days must be locked in the same order as by loaders to avoid deadlocks.
_LOCK_HORIZON = text("LOCK TABLE horizon IN SHARE ROW EXCLUSIVE MODE")
_LOCK_CHANGES = text("SELECT FROM changed_day WHERE day < :day ORDER BY day FOR UPDATE")
_HORIZON = text("SELECT max(day) FROM horizon")
_DELETE_HORIZON = text("DELETE FROM horizon")
_INSERT_HORIZON = text("INSERT INTO horizon (day) VALUES (:day)")
_LOOK_BACK = text("SELECT coalesce(max(look_back), 1) FROM run WHERE state = 'published'")
_DELETE_CHANGES = text("DELETE FROM changed_day WHERE day < :day")


def prune(
    engine: Engine,
    bounds: Bounds,
    *,
    dry_run: bool = False,
    on_progress: Callable[[str], None] = lambda line: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Pruned:
    """Remove all data before the bounds; a dry run only counts it.

    `on_progress` is called with a line of text after each step.

    Raises:
        DatabaseRefused: only the owner of the tables may prune.
        DatabaseAway: the steps completed so far are committed; prune again later.
    """
    horizon = bounds.results
    with reading(engine) if dry_run else writing(engine) as connection:
        on_postgresql = connection.dialect.name == "postgresql"
        if horizon is not None and on_postgresql and not dry_run:
            connection.execute(_LOCK_HORIZON)
        stored = connection.scalar(_HORIZON)
        frozen = None if stored is None else date.fromisoformat(str(stored))
        look_back = int(connection.scalar(_LOOK_BACK) or 1)
        if horizon is not None:
            horizon = max(filter(None, (horizon, frozen)))  # it never moves back
            if not dry_run:
                values = {"day": str(horizon)}
                if str(stored) != str(horizon):
                    connection.execute(_DELETE_HORIZON)
                    connection.execute(_INSERT_HORIZON, values)
                if on_postgresql:
                    connection.execute(_LOCK_CHANGES, values)
                connection.execute(_DELETE_CHANGES, values)  # frozen reports are never due
        if not dry_run:
            days = {f"{kind}_before": day for kind, day in asdict(bounds).items()}
            arguments = {kind: str(day) for kind, day in days.items() if day}
            record_operation(connection, "prune", arguments)
    before = horizon or frozen
    old = bounds.statements and before and min(bounds.statements, before)
    bounds = replace(bounds, statements=old)
    request = PruneRequest(engine, bounds, horizon, look_back, dry_run, on_progress, sleep)
    if engine.dialect.name == "sqlite":
        return prune_sqlite.prune(request)
    return prune_postgresql.prune(request)
