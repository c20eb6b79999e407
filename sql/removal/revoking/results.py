"""Deletes results, except those that others have sent as well."""

from __future__ import annotations

from datetime import date, timedelta

from sam_pipeline.sql.removal.derived import recompute_statuses
from sam_pipeline.sql.removal.revoking.period import Period, Withdrawn

KEY = "instance_id, measured_at, gatherer_id"
_THEIRS = """
    received_at >= :since AND received_at < :until
    AND measured_at >= :start AND measured_at < :stop
    AND source_id IN (SELECT source_id FROM result_source WHERE publisher_id IN :ids)
"""
# The bounds keep PostgreSQL to one partition.
_BOUNDS = "measured_at >= :start AND measured_at < :stop"
_IS_THEIRS = f"{_BOUNDS} AND ({KEY}, ordinal) IN (SELECT {KEY}, ordinal FROM revoked_row)"
_DAY = {"postgresql": "CAST(measured_at AS date)", "sqlite": "date(measured_at, 'unixepoch')"}

HAS_RESULTS = f"""
    SELECT EXISTS (SELECT 1 FROM metric_result WHERE {_THEIRS})
        OR EXISTS (SELECT 1 FROM result_repeat WHERE {_THEIRS})
"""


def delete_results(period: Period) -> Withdrawn:
    """Delete the results of the period; one that others have sent becomes that of the next one."""
    run, dialect = period.run, period.connection.dialect.name
    if dialect == "postgresql":
        run("LOCK TABLE ONLY metric_result IN SHARE ROW EXCLUSIVE MODE")
    run("DROP TABLE IF EXISTS revoked_row")
    run(f"DELETE FROM result_repeat WHERE {_THEIRS}")
    run(f"""
        CREATE TEMPORARY TABLE revoked_row AS
        SELECT {KEY}, ordinal FROM metric_result WHERE {_THEIRS}
    """)
    removed = int(run("SELECT count(*) FROM revoked_row").scalar_one())
    run("DROP TABLE IF EXISTS next_sender")
    run(f"""
        CREATE TEMPORARY TABLE next_sender AS
        SELECT * FROM (
            SELECT
                result_repeat.*,
                row_number() OVER (PARTITION BY {KEY}, ordinal ORDER BY received_at, source_id) AS n
            FROM result_repeat
            WHERE {_IS_THEIRS}
        ) AS sender
        WHERE n = 1
    """)
    restored = run(f"""
        UPDATE metric_result SET
            source_id = n.source_id, message_id = n.message_id, received_at = n.received_at
        FROM next_sender AS n
        WHERE {_BOUNDS.replace("measured_at", "metric_result.measured_at")}
            AND {_same("metric_result", "n")}
    """).rowcount
    for table in ("result_repeat", "revoked_row"):
        same = _same(table, "n")
        if table == "result_repeat":
            same += " AND result_repeat.source_id = n.source_id"
        run(f"DELETE FROM {table} WHERE EXISTS (SELECT 1 FROM next_sender AS n WHERE {same})")
    days = {
        date.fromisoformat(str(day))
        for day in run(f"SELECT DISTINCT {_DAY[dialect]} FROM revoked_row").scalars()
    }
    run(f"DELETE FROM metric_result_detail WHERE {_IS_THEIRS}")
    run(f"DELETE FROM metric_result WHERE {_IS_THEIRS}")
    _number_from_0(period)
    if days:
        bounds = {name: period.value(name) for name in ("start", "stop")}
        recompute_statuses(period.connection, bounds)
    # A report looks back to the previous day.
    return Withdrawn(removed, restored, frozenset(days | {day + timedelta(days=1) for day in days}))


def _number_from_0(period: Period) -> None:
    """Give the first one left of each key the ordinal 0, at which loaders expect it."""
    period.run("DROP TABLE IF EXISTS first_left")
    period.run(f"""
        CREATE TEMPORARY TABLE first_left AS
        SELECT {KEY}, min(ordinal) AS ordinal FROM metric_result
        WHERE {_BOUNDS} AND ({KEY}) IN (SELECT {KEY} FROM revoked_row)
        GROUP BY {KEY}
        HAVING min(ordinal) > 0
    """)
    for table in ("metric_result", "metric_result_detail", "result_repeat"):
        period.run(f"""
            UPDATE {table} SET ordinal = 0
            WHERE {_BOUNDS} AND ({KEY}, ordinal) IN (SELECT {KEY}, ordinal FROM first_left)
        """)


def _same(one: str, other: str) -> str:
    columns = ("instance_id", "measured_at", "gatherer_id", "ordinal")
    return " AND ".join(f"{one}.{name} = {other}.{name}" for name in columns)
