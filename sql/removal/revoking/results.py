"""Deletes results, except those that others have sent as well."""

from __future__ import annotations

from datetime import date, timedelta

from sam_pipeline.sql.removal.derived import recompute_statuses
from sam_pipeline.sql.removal.revoking.period import RevokedPeriod, Withdrawn

KEY = "instance_id, measured_at, gatherer_id"
ROW = f"{KEY}, ordinal"
# The bounds keep PostgreSQL to one partition.
_BOUNDS = "measured_at >= :start AND measured_at < :stop"
_THEIRS = f"""
    received_at >= :since AND received_at < :until AND {_BOUNDS}
    AND source_id IN (SELECT source_id FROM result_source WHERE publisher_id IN :ids)
"""
_IS_REVOKED = f"{_BOUNDS} AND ({ROW}) IN (SELECT {ROW} FROM revoked_row)"
_NEXT_SENDER = f"""
    SELECT * FROM (
        SELECT *, row_number() OVER (PARTITION BY {ROW} ORDER BY received_at, source_id) AS n
        FROM result_repeat
        WHERE {_IS_REVOKED}
    ) AS sender
    WHERE n = 1
"""
# Loaders expect the first one of a key at the ordinal 0.
_FIRST_LEFT = f"""
    SELECT {KEY}, min(ordinal) AS ordinal FROM metric_result
    WHERE {_BOUNDS} AND ({KEY}) IN (SELECT {KEY} FROM revoked_row)
    GROUP BY {KEY}
    HAVING min(ordinal) > 0
"""
_DAY = {"postgresql": "CAST(measured_at AS date)", "sqlite": "date(measured_at, 'unixepoch')"}

HAS_RESULTS = f"""
    SELECT EXISTS (SELECT 1 FROM metric_result WHERE {_THEIRS})
        OR EXISTS (SELECT 1 FROM result_repeat WHERE {_THEIRS})
"""


def delete_results(period: RevokedPeriod) -> Withdrawn:
    """Delete the results of the period; one that others have sent becomes that of the next one."""
    run, dialect = period.run, period.connection.dialect.name
    if dialect == "postgresql":
        run("LOCK TABLE ONLY metric_result IN SHARE ROW EXCLUSIVE MODE")
    run(f"DELETE FROM result_repeat WHERE {_THEIRS}")
    period.note("revoked_row", f"SELECT {ROW} FROM metric_result WHERE {_THEIRS}")
    removed = int(run("SELECT count(*) FROM revoked_row").scalar_one())
    period.note("next_sender", _NEXT_SENDER)
    restored = run("""
        UPDATE metric_result AS r SET
            source_id = n.source_id, message_id = n.message_id, received_at = n.received_at
        FROM next_sender AS n
        WHERE r.measured_at >= :start AND r.measured_at < :stop
            AND (r.instance_id, r.measured_at, r.gatherer_id, r.ordinal)
                = (n.instance_id, n.measured_at, n.gatherer_id, n.ordinal)
    """).rowcount
    for table, row in (("result_repeat", f"{ROW}, source_id"), ("revoked_row", ROW)):
        run(f"DELETE FROM {table} WHERE ({row}) IN (SELECT {row} FROM next_sender)")
    days = {
        date.fromisoformat(str(day))
        for day in run(f"SELECT DISTINCT {_DAY[dialect]} FROM revoked_row").scalars()
    }
    run(f"DELETE FROM metric_result_detail WHERE {_IS_REVOKED}")
    run(f"DELETE FROM metric_result WHERE {_IS_REVOKED}")
    period.note("first_left", _FIRST_LEFT)
    for table in ("metric_result", "metric_result_detail", "result_repeat"):
        is_first = f"{_BOUNDS} AND ({ROW}) IN (SELECT {ROW} FROM first_left)"
        run(f"UPDATE {table} SET ordinal = 0 WHERE {is_first}")
    if days:
        recompute_statuses(period.connection, period.values)
    # A report looks back to the previous day.
    return Withdrawn(removed, restored, frozenset(days | {day + timedelta(days=1) for day in days}))
