"""Forget whole UTC days: results, their details, the audit, settled dead letters, each at its age.

The horizon moves first: reports of days before it are frozen, so none is made from half a day. Of
the last pruned day, the one before the horizon, the newest result of each instance stays: the
report of the next day begins with it. Nothing is marked as changed.

Every step is a short transaction that changes nothing where it was done before. So a prune that
was killed is completed by the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date

from sqlalchemy import Engine

from sam_pipeline.sql.pruning import postgresql as prune_postgresql
from sam_pipeline.sql.pruning import sqlite as prune_sqlite
from sam_pipeline.sql.pruning.horizon import move_horizon, read_horizon
from sam_pipeline.sql.pruning.task import Bounds, Pruned, Task


def prune(
    engine: Engine,
    bounds: Bounds,
    *,
    dry_run: bool = False,
    told: Callable[[str], None] = lambda words: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Pruned:
    """Remove what lies before the bounds; `told` hears how far it is.

    Raises:
        DatabaseRefused: not asked by the owner of the tables.
        DatabaseAway: what was done is done; the same again later.
    """
    task = Task(engine, bounds, _horizon(engine, bounds, dry_run), dry_run, told, sleep)
    if engine.dialect.name == "sqlite":
        return prune_sqlite.prune(task)
    return prune_postgresql.prune(task)


def _horizon(engine: Engine, bounds: Bounds, dry_run: bool) -> date | None:
    """Where it is, or would be, when all is done."""
    if bounds.results is None:
        return None  # results stay as they are
    if not dry_run:
        return move_horizon(engine, bounds.results)
    return max(read_horizon(engine) or bounds.results, bounds.results)
