"""Pruning on SQLite: rows are deleted in batches, with pauses in which loaders can write.

The rows are looked up before the write lock is taken, so that it is held only while a batch is
deleted. The file does not shrink; its free pages are reused.
"""

from __future__ import annotations

from datetime import UTC, date, datetime

from sqlalchemy import text

from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.database.statements import TABLES
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.removal.pruning.request import Pruned, PruneRequest, Removed

BATCH_ROWS = 2_000
PAUSE_S = 0.05
"""Pause between two batches, in which another writer can get the lock."""

_BEFORE_ALL = -(2**63)

# Loaders expect the first result of a key at the ordinal 0.
_FIRST_OF_KEY = text("""
    UPDATE metric_result SET ordinal = 0
    WHERE measured_at >= :first AND measured_at < :end AND ordinal > 0
""")
_OLD = "measured_at < :end"
# The instance has a newer result on the same day, or a worse one of the same time.
_SUPERSEDED = """
    measured_at >= :first AND measured_at < :end AND EXISTS (
        SELECT 1
        FROM metric_result AS better
        WHERE better.instance_id = old.instance_id
            AND better.measured_at >= old.measured_at
            AND better.measured_at < (old.measured_at / 86400 + 1) * 86400
            AND (better.measured_at, better.status, -better.result_id)
                > (old.measured_at, old.status, -old.result_id)
    )
"""
_OLD_STATEMENT = "NOT holds AND received_at < :end"
_REPLAYED = "state = 'replayed' AND changed_at < :end"
_DROPPED = "state = 'dropped' AND changed_at < :end"


def prune(request: PruneRequest) -> Pruned:
    """Delete, or only count, the rows before the bounds."""
    bounds, first_thinned = request.bounds, request.first_thinned
    if not request.dry_run:
        fold_all(request.engine)  # results must be folded before they are deleted
    results = 0
    if bounds.results and first_thinned:
        first = min(bounds.results, first_thinned)
        results += _remove(request, "metric_result", "measured_at", _OLD, first)
        of_days = (_SUPERSEDED, bounds.results, first)
        results += _remove(request, "metric_result", "measured_at", *of_days)
        if not request.dry_run:
            with writing(request.engine) as connection:
                times = {"first": _seconds(first), "end": _seconds(bounds.results)}
                connection.execute(_FIRST_OF_KEY, times)
    _remove(request, "result_repeat", "instance_id", _OLD, bounds.results)
    details = _remove(request, "metric_result_detail", "instance_id", _OLD, bounds.details)
    statements = sum(
        _remove(request, table.name, "statement_id", _OLD_STATEMENT, bounds.statements)
        for table in TABLES
    )
    audit = _remove(request, "loaded_batch", "loaded_at", "loaded_at < :end", bounds.audit)
    letters = _remove(request, "dead_letter", "dead_letter_id", _REPLAYED, bounds.dead_letters)
    letters += _remove(request, "dead_letter", "dead_letter_id", _DROPPED, bounds.dropped_letters)
    return Pruned(
        Removed(results), Removed(details), Removed(statements), Removed(audit), Removed(letters)
    )


def _remove(
    request: PruneRequest,
    table: str,
    ordered_by: str,
    condition: str,
    end: date | None,
    first: date = date.min,
) -> int:
    """Delete, or only count, the rows that satisfy `condition`; returns their number.

    Args:
        ordered_by: an indexed column. Each batch continues at its value of the last row, so that
            no batch reads the rows of an earlier one again.
        end: the day whose beginning is `:end` in the condition; None keeps all rows.
        first: the day whose beginning is `:first`.
    """
    if end is None:
        return 0
    values = {"end": _seconds(end), "first": _seconds(first)}
    if request.dry_run:
        count = text(f"SELECT count(*) FROM {table} AS old WHERE {condition}")
        with reading(request.engine) as connection:
            return int(connection.scalar(count, values) or 0)
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
    with reading(request.engine) as connection:
        last = connection.scalar(text(f"SELECT max(rowid) FROM {table}"))
    position, deleted = _BEFORE_ALL, 0
    while True:
        with reading(request.engine) as connection:
            bound = {**values, "position": position, "last": last}
            batch = connection.execute(find, bound).all()
        if not batch:
            return deleted
        with writing(request.engine) as connection:
            deleting = connection.execute(delete, [{**values, "id": row.id} for row in batch])
            deleted += deleting.rowcount
        position = batch[-1].position
        request.on_progress(f"{deleted} rows of {table}")
        request.sleep(PAUSE_S)


def _seconds(day: date) -> int:
    """The epoch second at which a day begins."""
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
