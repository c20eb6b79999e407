"""Removes whole UTC days of results, details, old statements, audit rows and settled dead letters.

A prune first moves the horizon, the first day whose results are complete. Reports of days before it
are frozen and never due, so that none is computed from part of a day. Each of the days just before
the horizon keeps the newest result of each instance, because the next reports start from it: as
many days as any published report looks back. Only statements that no longer hold are removed, and
only those from before the horizon.

Each step is a short transaction that can be repeated, so the next prune completes an interrupted
one.

On PostgreSQL, day partitions are emptied, and dropped when the table is not in use. Emptying a
partition locks it, and dropping one locks the whole table. Sessions that request a lock after us,
such as loaders, wait behind us. So each step waits for its lock only briefly, is retried a few
times, and is then left to the next prune.

On SQLite, rows are deleted in batches, with pauses in which loaders can write. The rows are looked
up before the write lock is taken, so that it is held only while a batch is deleted. The file does
not shrink; its free pages are reused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import dropwhile, filterfalse
from typing import Any

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from sam_pipeline.schema.settings.key import Settings, duration_key
from sam_pipeline.sql.database.engine import name_of, reading, write_transaction, writing
from sam_pipeline.sql.database.operations import record_operation
from sam_pipeline.sql.database.partitions import DETAILS, RESULTS, Partition, partitions
from sam_pipeline.sql.database.statements import TABLES
from sam_pipeline.sql.errors import (
    LOCK_TIMEOUT,
    is_collision,
    is_missing_table,
    sqlstate,
    translated,
)
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.letters.dead_letter import stored_time

DAY = timedelta(days=1)
RESTORABLE = timedelta(days=7)
"""How long a dead letter that was dropped can be restored, whatever the bounds."""

# On PostgreSQL, the second of two concurrent prunes must read the horizon after the first has moved
# it, and changed days must be locked in the same order as by loaders to avoid deadlocks.
_LOCK_HORIZON = text("LOCK TABLE horizon IN SHARE ROW EXCLUSIVE MODE")
_LOCK_CHANGES = text("SELECT FROM changed_day WHERE day < :day ORDER BY day FOR UPDATE")
_HORIZON = text("SELECT max(day) FROM horizon")
_DELETE_HORIZON = text("DELETE FROM horizon")
_INSERT_HORIZON = text("INSERT INTO horizon (day) VALUES (:day)")
_LOOK_BACK = text("SELECT coalesce(max(look_back), 1) FROM run WHERE state = 'published'")
_DELETE_CHANGES = text("DELETE FROM changed_day WHERE day < :day")

# PostgreSQL.
TRIES = 5
LOCK_PAUSE_S = 1.0
"""Pause before locked partitions are tried again."""

_LOCK_TIMEOUT = text("SET LOCAL lock_timeout = '200ms'")

# Names of partitions come from the catalogue: the name of the table and eight digits.
_HAS_OLDER_RESULTS = "SELECT count(*) > count(DISTINCT instance_id) FROM {name}"
_EMPTY = ("TRUNCATE {name}",)
_KEEP_NEWEST = (
    # Loaders of this day wait; readers only wait while rows are written back.
    "LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE",
    # Of several results for one moment the worst counts.
    """
    CREATE TEMPORARY TABLE newest_result ON COMMIT DROP AS
    SELECT DISTINCT ON (instance_id) *
    FROM {name}
    ORDER BY instance_id, measured_at DESC, status DESC, result_id
    """,
    "UPDATE newest_result SET ordinal = 0",  # loaders expect the first one of a key there
    "TRUNCATE {name}",
    "INSERT INTO {name} OVERRIDING SYSTEM VALUE SELECT * FROM newest_result",
)
_DROP_IF_EMPTY = (
    # Conflicts with the locks of loaders and readers, so no session is about to fill the partition.
    "LOCK TABLE ONLY {parent} IN ACCESS EXCLUSIVE MODE",
    "DO $$ BEGIN IF NOT EXISTS (SELECT FROM {name}) THEN DROP TABLE {name}; END IF; END $$",
)

Remaining = Callable[[Callable[[Partition], bool], Iterable[Partition]], Iterable[Partition]]
"""Runs a step on partitions and returns those still to do: `filterfalse` tries all of them,
`dropwhile` stops at the first locked one."""

# SQLite.
BATCH_ROWS = 2_000
PAUSE_S = 0.05
"""Pause between two batches, in which another writer can get the lock."""

_BEFORE_ALL = -(2**63)

# Loaders expect the first result of a key at the ordinal 0.
_FIRST_OF_KEY = text("""
    UPDATE metric_result SET ordinal = 0
    WHERE measured_at >= :first AND measured_at < :end AND ordinal > 0
""")
# The instance has a newer result on the same day, or a worse one of the same time.
_SUPERSEDED = """
    measured_at >= :first AND EXISTS (
        SELECT 1
        FROM metric_result AS better
        WHERE better.instance_id = old.instance_id
            AND better.measured_at >= old.measured_at
            AND better.measured_at < (old.measured_at / 86400 + 1) * 86400
            AND (better.measured_at, better.status, -better.result_id)
                > (old.measured_at, old.status, -old.result_id)
    )
"""


@dataclass(frozen=True)
class Bounds:
    """The first UTC day to keep of each kind of data; None keeps all days.

    `statements` applies to those that no longer hold, by the day on which they arrived; `audit` to
    the rows of `load_audit`, `dead_letters` to replayed dead letters and `dropped_letters` to
    dropped ones, by the day on which that happened.
    """

    results: date | None = None
    details: date | None = None
    statements: date | None = None
    audit: date | None = None
    dead_letters: date | None = None
    dropped_letters: date | None = None


@dataclass(frozen=True)
class PruneRequest:
    """What to prune and how; `on_progress` is called with a line of text after each step.

    From `first_thinned` on, days before the bound keep the newest result of each instance.
    """

    engine: Engine
    bounds: Bounds
    first_thinned: date | None
    dry_run: bool
    on_progress: Callable[[str], None]
    sleep: Callable[[float], None]


@dataclass(frozen=True)
class Removed:
    """How much was or would be removed: rows, or partitions and their size (PostgreSQL)."""

    rows: int | None = None
    partitions: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Pruned:
    """What a prune did or would do.

    `left` names partitions that could not be emptied because they were locked, `not_dropped` empty
    ones that could not be dropped because the table was in use. The next prune retries both.
    """

    results: Removed
    details: Removed
    statements: Removed
    audit: Removed
    dead_letters: Removed
    left: Sequence[str] = ()
    not_dropped: Sequence[str] = ()


def _age_key(name: str, meaning: str, default: float | None) -> Any:
    return duration_key(f"keep_{name}", meaning, default, "1d", "99999d", unit_s=86_400)


class PruneConfig(Settings):
    """How long `sam-db prune` keeps data, in days."""

    SECTION = "prune"

    keep_results: float = _age_key("results", "results", 400.0)
    keep_details: float = _age_key("details", "the details of results", 60.0)
    keep_statements: float | None = _age_key("statements", "statements that no longer hold", None)
    keep_audit: float = _age_key("audit", "rows of `load_audit`", 90.0)
    keep_dead_letters: float = _age_key("dead_letters", "replayed and dropped dead letters", 30.0)


def bounds_of(
    today: date,
    keep_results: float | None = None,
    keep_details: float | None = None,
    keep_statements: float | None = None,
    keep_audit: float | None = None,
    keep_dead_letters: float | None = None,
) -> Bounds:
    """The bounds that keep today and a number of days before it; None keeps all days.

    Details are kept no longer than their results, and dropped dead letters at least as long as they
    can be restored.
    """
    ages = (keep_results, keep_details, keep_statements, keep_audit, keep_dead_letters)
    results, details, statements, audit, dead_letters = (
        None if age is None else today - age * DAY for age in ages
    )
    details = max(filter(None, (results, details)), default=None)
    dropped = dead_letters and min(dead_letters, today - RESTORABLE)
    return Bounds(results, details, statements, audit, dead_letters, dropped)


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
    first_thinned = horizon and horizon - look_back * DAY
    request = PruneRequest(engine, bounds, first_thinned, dry_run, on_progress, sleep)
    left, not_dropped = list[Partition](), list[Partition]()
    if on_postgresql:
        results, details, left, not_dropped = _prune_partitions(request)
    else:
        results, details = _prune_results(request)
    _remove(request, "result_repeat", "instance_id", "measured_at", bounds.results)
    statements = sum(
        _remove(request, table.name, "statement_id", "received_at", bounds.statements, "NOT holds")
        for table in TABLES
    )
    audit = _remove(request, "loaded_batch", "loaded_at", "loaded_at", bounds.audit)
    letters = sum(
        _remove(request, "dead_letter", "dead_letter_id", "changed_at", end, f"state = '{state}'")
        for state, end in (("replayed", bounds.dead_letters), ("dropped", bounds.dropped_letters))
    )
    return Pruned(
        results,
        details,
        Removed(statements),
        Removed(audit),
        Removed(letters),
        left=tuple(partition.name for partition in left),
        not_dropped=tuple(partition.name for partition in not_dropped),
    )


def _prune_partitions(
    request: PruneRequest,
) -> tuple[Removed, Removed, list[Partition], list[Partition]]:
    """Empty and drop, or only count, the partitions of days before the bounds.

    Returns what became of results and details, and the partitions that could not be emptied, and
    not be dropped.
    """
    bounds = request.bounds
    first_kept = {RESULTS: bounds.results, DETAILS: bounds.details}

    def old_partitions(connection: Connection) -> list[Partition]:
        return [
            partition
            for partition in partitions(connection)
            if (day := first_kept[partition.parent]) and partition.day < day
        ]

    to_thin, to_empty, first_thinned = [], [], request.first_thinned
    with reading(request.engine) as connection:
        for partition in old_partitions(connection):
            if partition.parent == RESULTS and first_thinned and partition.day >= first_thinned:
                statement = text(_HAS_OLDER_RESULTS.format(name=partition.name))
                if partition.filled and connection.scalar(statement):
                    to_thin.append(partition)
            elif partition.filled:
                to_empty.append(partition)
    left, not_dropped, bytes_left = [], [], {}
    if not request.dry_run:
        left = _run_on_each(request, _KEEP_NEWEST, to_thin, filterfalse)
        left += _run_on_each(request, _EMPTY, to_empty, filterfalse)
        with reading(request.engine) as connection:
            empty = [old for old in old_partitions(connection) if not old.filled]
        # A session that keeps us from dropping one keeps us from dropping any.
        not_dropped = _run_on_each(request, _DROP_IF_EMPTY, empty, dropwhile)
        with reading(request.engine) as connection:
            bytes_left = {partition.name: partition.bytes for partition in partitions(connection)}
    done = [partition for partition in (*to_empty, *to_thin) if partition not in left]

    def removed(parent: str) -> Removed:
        freed = [
            max(0, partition.bytes - bytes_left.get(partition.name, 0))
            for partition in done
            if partition.parent == parent
        ]
        return Removed(partitions=len(freed), bytes=sum(freed))

    return removed(RESULTS), removed(DETAILS), left, not_dropped


def _run_on_each(
    request: PruneRequest,
    statements: Sequence[str],
    todo: Sequence[Partition],
    remaining: Remaining,
) -> list[Partition]:
    """Run the statements on each partition, in transactions that only wait briefly for locks.

    Returns the partitions that were locked in all tries.
    """

    def is_done(partition: Partition) -> bool:
        try:
            with write_transaction(request.engine) as connection:
                connection.execute(_LOCK_TIMEOUT)
                for statement in statements:
                    names = {"name": partition.name, "parent": partition.parent}
                    connection.execute(text(statement.format(**names)))
        except DBAPIError as error:
            if sqlstate(error) == LOCK_TIMEOUT or is_collision(error):
                return False
            if not is_missing_table(error):  # a concurrent prune may have dropped it
                raise translated(error, name_of(request.engine)) from error
        request.on_progress(partition.name)
        return True

    locked = list(remaining(is_done, todo))
    for _ in range(TRIES - 1):
        if locked:
            request.on_progress(f"waiting for a lock on {locked[0].name}")
            request.sleep(LOCK_PAUSE_S)
            locked = list(remaining(is_done, locked))
    return locked


def _prune_results(request: PruneRequest) -> tuple[Removed, Removed]:
    """Delete, or only count, the results and details before the bounds."""
    bounds, results = request.bounds, 0
    if not request.dry_run:
        fold_all(request.engine)  # results must be folded before they are deleted
    if bounds.results and request.first_thinned:
        first = min(bounds.results, request.first_thinned)
        table = (request, "metric_result", "measured_at", "measured_at")
        results += _remove(*table, first)
        results += _remove(*table, bounds.results, _SUPERSEDED, first)
        if not request.dry_run:
            with writing(request.engine) as connection:
                days = {"first": first, "end": bounds.results}
                times = {name: _stored_day(connection, day) for name, day in days.items()}
                connection.execute(_FIRST_OF_KEY, times)
    details = ("metric_result_detail", "instance_id", "measured_at", bounds.details)
    return Removed(results), Removed(_remove(request, *details))


def _remove(
    request: PruneRequest,
    table: str,
    ordered_by: str,
    moment: str,
    end: date | None,
    condition: str = "true",
    first: date = date.min,
) -> int:
    """Delete, or only count, the rows from before a day that satisfy `condition`.

    Returns their number.

    Args:
        ordered_by: an indexed column. On SQLite each batch continues at its value of the last row,
            so that no batch reads the rows of an earlier one again.
        moment: the column that must lie before the day `end`; None keeps all rows.
        first: the day whose beginning is `:first` in the condition.
    """
    if end is None:
        return 0
    engine, condition = request.engine, f"{moment} < :end AND {condition}"
    old, removed = f"FROM {table} AS old WHERE {condition}", 0
    with reading(engine) as connection:
        values = {"end": _stored_day(connection, end), "first": _stored_day(connection, first)}
        if request.dry_run:
            return int(connection.scalar(text(f"SELECT count(*) {old}"), values) or 0)
        if engine.dialect.name == "sqlite":
            last = connection.scalar(text(f"SELECT max(rowid) FROM {table}"))
    if engine.dialect.name == "postgresql":
        # One day of rows at a time keeps the transactions short.
        one_day = f"{moment} < (SELECT min({moment}) {old}) + interval '1 day'"
        while True:
            with writing(engine) as connection:
                deleted = connection.execute(text(f"DELETE {old} AND {one_day}"), values).rowcount
            if not deleted:
                return removed
            removed += deleted
            request.on_progress(f"{removed} rows of {table}")
    # Rows loaded meanwhile are left to the next prune: a fast loader could keep this one busy for
    # ever. The unary plus keeps SQLite from using rowid instead of our index.
    find = text(f"""
        SELECT rowid AS id, {ordered_by} AS position
        FROM {table} AS old
        WHERE {ordered_by} >= :position AND +rowid <= :last AND {condition}
        ORDER BY {ordered_by}
        LIMIT {BATCH_ROWS}
    """)
    # The condition is checked again: a row may have become worse since the look-up, and the newest.
    delete = text(f"DELETE FROM {table} AS old WHERE rowid = :id AND {condition}")
    position = _BEFORE_ALL
    while True:
        with reading(engine) as connection:
            bound = {**values, "position": position, "last": last}
            batch = connection.execute(find, bound).all()
        if not batch:
            return removed
        with writing(engine) as connection:
            deleting = connection.execute(delete, [{**values, "id": row.id} for row in batch])
            removed += deleting.rowcount
        position = batch[-1].position
        request.on_progress(f"{removed} rows of {table}")
        request.sleep(PAUSE_S)


def _stored_day(connection: Connection, day: date) -> datetime | int:
    """The beginning of a day as a column of the database."""
    return stored_time(connection, datetime(day.year, day.month, day.day, tzinfo=UTC))
