"""Pruning on PostgreSQL: day partitions are emptied, and dropped when the table is not in use.

Emptying a partition locks it, and dropping one locks the whole table. Sessions that request a lock
after us, such as loaders, wait behind us. So each step waits for its lock only briefly, is retried
a few times, and is then left to the next prune.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date
from itertools import dropwhile, filterfalse

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from sam_pipeline.sql.database.engine import name_of, reading, write_transaction, writing
from sam_pipeline.sql.database.partitions import DETAILS, RESULTS, Partition, partitions
from sam_pipeline.sql.database.statements import TABLES
from sam_pipeline.sql.errors import is_collision, translated
from sam_pipeline.sql.removal.pruning.request import Pruned, PruneRequest, Removed

TRIES = 5
PAUSE_S = 1.0
"""Pause before locked partitions are tried again."""

_LOCK_TIMEOUT = text("SET LOCAL lock_timeout = '200ms'")
_LOCK_NOT_AVAILABLE = "55P03"
_UNDEFINED_TABLE = "42P01"

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


def prune(request: PruneRequest) -> Pruned:
    """Empty and drop, or only count, the partitions of days before the bounds."""
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
        left = _run(request, _KEEP_NEWEST, to_thin, filterfalse)
        left += _run(request, _EMPTY, to_empty, filterfalse)
        with reading(request.engine) as connection:
            empty = [old for old in old_partitions(connection) if not old.filled]
        # A session that keeps us from dropping one keeps us from dropping any.
        not_dropped = _run(request, _DROP_IF_EMPTY, empty, dropwhile)
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

    _remove_rows(request, "result_repeat", "measured_at", bounds.results)
    statements = [
        _remove_rows(request, table.name, "received_at", bounds.statements, "NOT holds").rows or 0
        for table in TABLES
    ]
    replayed, dropped = (
        _remove_rows(request, "dead_letter", "changed_at", before, f"state = '{state}'")
        for state, before in (
            ("replayed", bounds.dead_letters),
            ("dropped", bounds.dropped_letters),
        )
    )
    return Pruned(
        removed(RESULTS),
        removed(DETAILS),
        Removed(rows=sum(statements)),
        _remove_rows(request, "loaded_batch", "loaded_at", bounds.audit),
        Removed(rows=(replayed.rows or 0) + (dropped.rows or 0)),
        left=tuple(partition.name for partition in left),
        not_dropped=tuple(partition.name for partition in not_dropped),
    )


def _run(
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
            state = getattr(error.orig, "pgcode", None)
            if state == _LOCK_NOT_AVAILABLE or is_collision(error):
                return False
            if state != _UNDEFINED_TABLE:  # that is, dropped by a concurrent prune
                raise translated(error, name_of(request.engine)) from error
        request.on_progress(partition.name)
        return True

    locked = list(remaining(is_done, todo))
    for _ in range(TRIES - 1):
        if locked:
            request.on_progress(f"waiting for a lock on {locked[0].name}")
            request.sleep(PAUSE_S)
            locked = list(remaining(is_done, locked))
    return locked


def _remove_rows(
    request: PruneRequest, table: str, time: str, before: date | None, condition: str = "true"
) -> Removed:
    """Delete, or only count, the rows of a table whose column `time` lies before a day."""
    if before is None:
        return Removed(rows=0)
    old_rows = f"FROM {table} WHERE {condition} AND {time} < :before"
    values = {"before": f"{before}T00:00:00Z"}
    if request.dry_run:
        with reading(request.engine) as connection:
            return Removed(rows=connection.scalar(text(f"SELECT count(*) {old_rows}"), values))
    # One day of rows at a time keeps the transactions short.
    delete = f"DELETE {old_rows} AND {time} < (SELECT min({time}) {old_rows}) + interval '1 day'"
    rows = 0
    while True:
        with writing(request.engine) as connection:
            deleted = connection.execute(text(delete), values).rowcount
        if not deleted:
            return Removed(rows=rows)
        rows += deleted
        request.on_progress(f"{rows} rows of {table}")
