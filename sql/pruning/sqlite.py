"""Pruning on SQLite: deletes in batches, with room for the loader between any two.

What to delete is looked up while others may write, so the one write lock is held only while a
batch is deleted. The file does not shrink: its free pages take what comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from sqlalchemy import Engine, text

from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.pruning.task import DAY, Pruned, Removed, Task

BATCH_ROWS = 2_000
PAUSE_S = 0.05
"""Between two batches another writer finds nobody before it for so long."""

_BEFORE_ALL = -(2**63)

_OLD = "measured_at < :end"
_SETTLED = "state <> 'open' AND changed_at < :end"
# Another one of the same instance and day is newer, or as new and worse.
_NOT_THE_NEWEST = """
    measured_at >= :start AND measured_at < :end AND EXISTS (
        SELECT 1
        FROM metric_result AS better
        WHERE better.instance_id = old.instance_id
            AND better.measured_at >= old.measured_at
            AND better.measured_at < :end
            AND (better.measured_at, better.status, -better.result_id)
                > (old.measured_at, old.status, -old.result_id)
    )
"""


@dataclass(frozen=True)
class Doomed:
    """Rows that are to go: those of `table` of which `condition`, bound to `values`, is true.

    `ordered_by` has an index, in whose order they are found: none is looked at in each batch.
    """

    table: str
    ordered_by: str
    condition: str
    values: Mapping[str, int]


def prune(task: Task) -> Pruned:
    """Delete, or count, what lies before the bounds."""
    if not task.dry_run:
        fold_all(task.engine)  # what is deleted is news no more
    return Pruned(
        _removed(task, _results(task)),
        _removed(task, _details(task)),
        _removed(task, _audit(task)),
        _removed(task, _dead_letters(task)),
    )


def _results(task: Task) -> list[Doomed]:
    before, last_pruned = task.bounds.results, task.last_pruned
    if last_pruned:
        return [_old_results(last_pruned), _all_but_newest(last_pruned)]
    return [_old_results(before)] if before else []


def _details(task: Task) -> list[Doomed]:
    before = task.bounds.details
    if before is None:
        return []
    return [Doomed("metric_result_detail", "instance_id", _OLD, {"end": _second(before)})]


def _audit(task: Task) -> list[Doomed]:
    before = task.bounds.audit
    if before is None:
        return []
    return [Doomed("loaded_batch", "loaded_at", "loaded_at < :end", {"end": _second(before)})]


def _dead_letters(task: Task) -> list[Doomed]:
    before = task.bounds.dead_letters
    if before is None:
        return []
    return [Doomed("dead_letter", "dead_letter_id", _SETTLED, {"end": _second(before)})]


def _old_results(before: date) -> Doomed:
    return Doomed("metric_result", "measured_at", _OLD, {"end": _second(before)})


def _all_but_newest(day: date) -> Doomed:
    window = {"start": _second(day), "end": _second(day + DAY)}
    return Doomed("metric_result", "measured_at", _NOT_THE_NEWEST, window)


def _removed(task: Task, doomed: Sequence[Doomed]) -> Removed:
    if task.dry_run:
        return Removed(rows=sum(_count(task.engine, each) for each in doomed))
    rows = 0
    for each in doomed:
        for deleted in _delete(task.engine, each):
            rows += deleted
            task.told(f"{rows} rows of {each.table}")
            task.sleep(PAUSE_S)
    return Removed(rows=rows)


def _count(engine: Engine, doomed: Doomed) -> int:
    statement = f"SELECT count(*) FROM {doomed.table} AS old WHERE {doomed.condition}"
    with reading(engine) as connection:
        return int(connection.execute(text(statement), doomed.values).scalar_one())


def _delete(engine: Engine, doomed: Doomed) -> Iterator[int]:
    """Delete those that are there now; after each batch, how many it deleted."""
    # What is loaded meanwhile is for the next prune, or a quick loader would keep us for ever;
    # the plus keeps SQLite from looking up by that instead of by our index.
    find = text(f"""
        SELECT rowid AS id, {doomed.ordered_by} AS position
        FROM {doomed.table} AS old
        WHERE {doomed.ordered_by} >= :position AND +rowid <= :last AND {doomed.condition}
        ORDER BY {doomed.ordered_by}
        LIMIT {BATCH_ROWS}
    """)
    # The condition again: a row may have become worse, and so the newest, since it was found.
    forget = text(f"DELETE FROM {doomed.table} AS old WHERE rowid = :id AND {doomed.condition}")
    with reading(engine) as connection:
        last = connection.scalar(text(f"SELECT max(rowid) FROM {doomed.table}"))
    reached = {"position": _BEFORE_ALL, "last": last}
    while True:
        with reading(engine) as connection:
            found = connection.execute(find, {**doomed.values, **reached}).all()
        if not found:
            return
        with writing(engine) as connection:
            done = connection.execute(forget, [{**doomed.values, "id": row.id} for row in found])
            deleted = done.rowcount
        yield deleted
        reached["position"] = found[-1].position


def _second(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
