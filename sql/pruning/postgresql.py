"""Pruning on PostgreSQL: day partitions are emptied, and dropped when nobody reads the table.

Emptying locks one partition, dropping locks the whole table, and whoever waits for such a lock
makes all others wait behind it, loaders too. So nobody waits for long: a step that gets no lock is
tried again later, and at last left for the next prune.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import dropwhile, filterfalse

from sqlalchemy import Connection, TextClause, text
from sqlalchemy.exc import DBAPIError

from sam_pipeline.sql.database.engine import name_of, reading, write_transaction, writing
from sam_pipeline.sql.errors import is_collision, translated
from sam_pipeline.sql.pruning.partitions import DETAILS, RESULTS, Partition, partitions
from sam_pipeline.sql.pruning.task import Bounds, Pruned, Removed, Task

TRIES = 5
PAUSE_S = 1.0
"""Between two tries of what others held."""

_LOCK_TIMEOUT = text("SET LOCAL lock_timeout = '200ms'")
_LOCK_NOT_AVAILABLE = "55P03"
_UNDEFINED_TABLE = "42P01"

# The names of partitions come from the catalogue: a table's name and eight digits.
_TOO_MANY = "SELECT count(*) > count(DISTINCT instance_id) FROM {name}"
_EMPTY = "TRUNCATE {name}"
_KEEP_NEWEST = (
    # Loaders of this day wait, readers only while the rows are put back.
    "LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE",
    # Several results at one moment: the worst, which is the one that counts.
    """
    CREATE TEMPORARY TABLE newest_result ON COMMIT DROP AS
    SELECT DISTINCT ON (instance_id) *
    FROM {name}
    ORDER BY instance_id, measured_at DESC, status DESC, result_id
    """,
    "TRUNCATE {name}",
    "INSERT INTO {name} OVERRIDING SYSTEM VALUE SELECT * FROM newest_result",
)
# Whoever loads or reads has a lock on the table: with ours nobody is about to fill the partition.
_LOCK_TABLE = "LOCK TABLE ONLY {parent} IN ACCESS EXCLUSIVE MODE"
_IS_EMPTY = "SELECT NOT EXISTS (SELECT FROM {name})"
_DROP = "DROP TABLE {name}"

# A day at a time, so that no transaction is long.
_OLD_ROWS = "FROM {table} WHERE {condition} AND {time} < :before"
_FORGET = f"""
    DELETE {_OLD_ROWS} AND {{time}} < (SELECT min({{time}}) {_OLD_ROWS}) + interval '1 day'
"""

Step = Callable[[Connection, Partition], None]
Rest = Callable[[Callable[[Partition], bool], Iterable[Partition]], Iterable[Partition]]


@dataclass(frozen=True)
class Plan:
    """The partitions to be emptied, and the one to leave the newest results in, if any."""

    empty: Sequence[Partition]
    keep_newest: Sequence[Partition]

    def of(self, parent: str) -> list[Partition]:
        return [one for one in (*self.empty, *self.keep_newest) if one.parent == parent]


@dataclass(frozen=True)
class OldRows:
    """Rows of a table: those of which `condition` is true and whose `time` lies before a day."""

    table: str
    time: str
    condition: str
    before: date | None

    def statement(self, pattern: str) -> tuple[TextClause, dict[str, str]]:
        words = pattern.format(table=self.table, time=self.time, condition=self.condition)
        return text(words), {"before": f"{self.before}T00:00:00Z"}


def prune(task: Task) -> Pruned:
    """Empty and drop, or tell, the partitions of days before the bounds."""
    with reading(task.engine) as connection:
        plan = _plan(connection, task)
    if task.dry_run:
        return Pruned(_removed(plan.of(RESULTS), []), _removed(plan.of(DETAILS), []), *_rows(task))
    left = [
        *_in_rounds(task, _keep_newest, plan.keep_newest, filterfalse),
        *_in_rounds(task, _empty, plan.empty, filterfalse),
    ]
    # A refusal to drop one is a refusal to drop any: the next ones need not make others wait.
    not_dropped = _in_rounds(task, _drop_if_empty, _emptied(task), dropwhile)
    with reading(task.engine) as connection:
        now = partitions(connection)
    return Pruned(
        _removed(set(plan.of(RESULTS)) - set(left), now),
        _removed(set(plan.of(DETAILS)) - set(left), now),
        *_rows(task),
        left=tuple(one.name for one in left),
        not_dropped=tuple(one.name for one in not_dropped),
    )


def _plan(connection: Connection, task: Task) -> Plan:
    filled = [one for one in partitions(connection) if one.filled and _is_old(one, task.bounds)]
    last = [one for one in filled if one.parent == RESULTS and one.day == task.last_pruned]
    return Plan(
        empty=[one for one in filled if one not in last],
        keep_newest=[one for one in last if _ask(connection, _TOO_MANY, one)],
    )


def _is_old(partition: Partition, bounds: Bounds) -> bool:
    first_kept = bounds.results if partition.parent == RESULTS else bounds.details
    return first_kept is not None and partition.day < first_kept


def _emptied(task: Task) -> list[Partition]:
    with reading(task.engine) as connection:
        found = partitions(connection)
    return [one for one in found if not one.filled and _is_old(one, task.bounds)]


def _removed(done: Collection[Partition], now: Iterable[Partition]) -> Removed:
    """`now`: how they are after it."""
    size = {one.name: one.bytes for one in now}
    freed = sum(max(0, one.bytes - size.get(one.name, 0)) for one in done)
    return Removed(partitions=len(done), bytes=freed)


def _rows(task: Task) -> tuple[Removed, Removed]:
    """Delete, or count, what lies in no partitions: of the audit, and of dead letters."""
    audit = OldRows("loaded_batch", "loaded_at", "true", task.bounds.audit)
    settled = OldRows("dead_letter", "changed_at", "state <> 'open'", task.bounds.dead_letters)
    return _removed_rows(task, audit), _removed_rows(task, settled)


def _removed_rows(task: Task, old: OldRows) -> Removed:
    if old.before is None:
        return Removed(rows=0)
    if task.dry_run:
        with reading(task.engine) as connection:
            return Removed(rows=connection.scalar(*old.statement(f"SELECT count(*) {_OLD_ROWS}")))
    rows = 0
    while deleted := _forget(task, old):
        rows += deleted
        task.told(f"{rows} rows of {old.table}")
    return Removed(rows=rows)


def _forget(task: Task, old: OldRows) -> int:
    with writing(task.engine) as connection:
        return connection.execute(*old.statement(_FORGET)).rowcount


def _empty(connection: Connection, partition: Partition) -> None:
    _execute(connection, _EMPTY, partition)


def _keep_newest(connection: Connection, partition: Partition) -> None:
    for statement in _KEEP_NEWEST:
        _execute(connection, statement, partition)


def _drop_if_empty(connection: Connection, partition: Partition) -> None:
    _execute(connection, _LOCK_TABLE, partition)
    if _ask(connection, _IS_EMPTY, partition):
        _execute(connection, _DROP, partition)


def _in_rounds(task: Task, step: Step, todo: Iterable[Partition], rest: Rest) -> list[Partition]:
    """Take the step for each, several times if need be; those that others held on to."""

    def done(partition: Partition) -> bool:
        return _done(task, step, partition)

    left = list(rest(done, todo))
    for _ in range(TRIES - 1):
        if left:
            task.told(f"waiting for others to leave {left[0].name}")
            task.sleep(PAUSE_S)
            left = list(rest(done, left))
    return left


def _done(task: Task, step: Step, partition: Partition) -> bool:
    """Whether it could be done: in a transaction of its own, without waiting for others."""
    try:
        with write_transaction(task.engine) as connection:
            connection.execute(_LOCK_TIMEOUT)
            step(connection, partition)
    except DBAPIError as error:
        state = getattr(error.orig, "pgcode", None)
        if state == _LOCK_NOT_AVAILABLE or is_collision(error):
            return False
        if state != _UNDEFINED_TABLE:  # else another prune has dropped it
            raise translated(error, name_of(task.engine)) from error
    task.told(partition.name)
    return True


def _execute(connection: Connection, statement: str, partition: Partition) -> None:
    connection.execute(text(statement.format(name=partition.name, parent=partition.parent)))


def _ask(connection: Connection, question: str, partition: Partition) -> bool:
    return bool(connection.scalar(text(question.format(name=partition.name))))
