"""What is derived from results, when some are removed: the newest statuses and the due days."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta

from sqlalchemy import Connection, text

from sam_pipeline.sql.loading.fold import fold_here
from sam_pipeline.sql.loading.letters.dead_letter import stored_time

_FIRST = text("SELECT CAST(min(day) AS text) FROM changed_day")
_UNMARK = text("DELETE FROM changed_day WHERE day = :day")
_MARK = text("""
    INSERT INTO changed_day (day) VALUES (:day)
    ON CONFLICT (day) DO UPDATE SET change_no = NULL, results_no = NULL
""")
_IS_FIRST = text("""
    SELECT :day = (SELECT CAST(min(day) AS text) FROM changed_day)
        AND NOT EXISTS (SELECT 1 FROM published_run WHERE day = :day)
""")
_HAS_RESULTS = text("""
    SELECT EXISTS (SELECT 1 FROM metric_result WHERE measured_at >= :start AND measured_at < :stop)
""")
_HORIZON = text("SELECT max(day) FROM horizon")

_STATUSES = """
    SELECT i.status_id FROM metric_instance AS i
    WHERE i.instance_id IN (SELECT instance_id FROM revoked_row)
"""
_WITHOUT_RESULT = f"""
    UPDATE instance_status SET
        status = NULL, since = NULL, measured_at = NULL, other_at = NULL, summary = NULL
    WHERE status_id IN ({_STATUSES})
        AND measured_at >= :start AND measured_at < :stop
        AND NOT EXISTS (
            SELECT 1 FROM metric_instance AS i
            JOIN metric_result AS r ON r.instance_id = i.instance_id
            WHERE i.status_id = instance_status.status_id
                AND r.measured_at = instance_status.measured_at
                AND r.measured_at >= :start AND r.measured_at < :stop
        )
"""
_READ_HISTORY = f"SELECT read_history(ARRAY(SELECT DISTINCT status_id FROM ({_STATUSES}) AS s))"

# SQLite reads the history of a status if a new result is older than since. So the newest result
# becomes a new one, and since a later time, unless it is known from results that were pruned.
_NEWEST = """
    UPDATE instance_status SET
        measured_at = r.measured_at,
        summary = r.summary,
        since = CASE
            WHEN since < (SELECT unixepoch(day) FROM horizon) AND instance_status.status = r.status
                THEN since
            ELSE r.measured_at + 1
        END,
        other_at = CASE WHEN other_at < (SELECT unixepoch(day) FROM horizon) THEN other_at END
    FROM revoked_newest AS r
    WHERE r.status_id = instance_status.status_id
"""
_SQLITE = (
    "DROP TABLE IF EXISTS revoked_newest",
    f"""
    CREATE TEMPORARY TABLE revoked_newest AS
    SELECT i.status_id, r.result_id, r.measured_at, r.status, r.summary
    FROM instance_status AS i
    JOIN metric_result AS r ON r.result_id = (
        SELECT q.result_id FROM metric_instance AS n
        JOIN metric_result AS q ON q.instance_id = n.instance_id
        WHERE n.status_id = i.status_id
        ORDER BY q.measured_at DESC, q.status DESC, q.result_id
        LIMIT 1
    )
    WHERE i.status_id IN ({_STATUSES})
    """,
    _NEWEST,
    "INSERT INTO load_news (result_id) SELECT result_id FROM revoked_newest",
    """
    UPDATE instance_status SET
        status = n.status, since = n.since, measured_at = n.measured_at, other_at = n.other_at,
        summary = n.summary
    FROM unfolded_status AS n
    WHERE n.status_id = instance_status.status_id
    """,
    "DELETE FROM load_news",
    f"""
    UPDATE instance_status SET
        status = NULL, since = NULL, measured_at = NULL, other_at = NULL, summary = NULL
    WHERE status_id IN ({_STATUSES}) AND status_id NOT IN (SELECT status_id FROM revoked_newest)
    """,
)


def lock_and_fold(connection: Connection) -> None:
    """Apply all loaded results, and keep others from marking days."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE change_counter IN SHARE UPDATE EXCLUSIVE MODE"))
        connection.execute(text("LOCK TABLE changed_day IN SHARE ROW EXCLUSIVE MODE"))
    fold_here(connection)


def first_reported_day(connection: Connection) -> date:
    """The first day that can have reports that are due; tomorrow before the first result."""
    first, frozen = connection.scalar(_FIRST), connection.scalar(_HORIZON)
    if first is None:
        return datetime.now(UTC).date() + timedelta(days=1)
    return date.fromisoformat(max(first, str(frozen or "")))


def recompute_statuses(connection: Connection, bounds: Mapping[str, object]) -> None:
    """Read the newest statuses of the instances in `revoked_row` from the stored results.

    `bounds` has the times `start` and `stop` between which results were removed.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text(_READ_HISTORY))
        connection.execute(text(_WITHOUT_RESULT), bounds)
        return
    for statement in _SQLITE:
        connection.execute(text(statement))


def mark(connection: Connection, days: Iterable[date]) -> None:
    """Make the reports of these days due."""
    for day in sorted(days):
        connection.execute(_MARK, {"day": str(day)})


def forget_first_days(connection: Connection, changed: Collection[date]) -> set[date]:
    """Unmark the changed days before the first remaining result, on which reports begin.

    Returns them. Days with a published report stay.
    """
    forgotten = set()
    for day in sorted(changed):
        start = datetime.combine(day, time(), UTC)
        times = {"start": start, "stop": start + timedelta(days=1)}
        bounds = {name: stored_time(connection, moment) for name, moment in times.items()}
        is_first = connection.scalar(_IS_FIRST, {"day": str(day)})
        if not is_first or connection.scalar(_HAS_RESULTS, bounds):
            break
        connection.execute(_UNMARK, {"day": str(day)})
        forgotten.add(day)
    return forgotten
