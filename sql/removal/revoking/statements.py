"""Withdraws statements, so that what held before holds again, and takes that back."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import text

from sam_pipeline.sql.database.statements import StatementTable, settle
from sam_pipeline.sql.loading.letters.dead_letter import time_of
from sam_pipeline.sql.removal.days import RowSpan, changed_days
from sam_pipeline.sql.removal.derived import first_reported_day
from sam_pipeline.sql.removal.revoking.period import THEIRS, RevokedPeriod, Withdrawn

_LOCK = text("SELECT lock_statements()")


def withdraw(period: RevokedPeriod, table: StatementTable, undo: bool) -> Withdrawn:
    """Withdraw the statements of the period about one class, or undo that."""
    if period.connection.dialect.name == "postgresql":
        period.connection.execute(_LOCK)
    theirs = f"{THEIRS} AND withdrawn_at IS {'NOT NULL' if undo else 'NULL'}"
    period.note("revoked_key", f"SELECT DISTINCT {table.key} FROM {table.name} WHERE {theirs}")
    is_touched = f"({table.key}) IN (SELECT {table.key} FROM revoked_key)"
    before = _spans(period, table, is_touched)
    now = "NULL" if undo else ":now"
    withdrawn = period.run(f"UPDATE {table.name} SET withdrawn_at = {now} WHERE {theirs}").rowcount
    restored = settle(period.connection, table, is_touched)
    after = _spans(period, table, is_touched)
    reported = first_reported_day(period.connection), datetime.now(UTC).date()
    days = changed_days(before, after, *reported)
    if table.view == "downtime":
        # When one counts as announced may depend on each statement about it.
        days = changed_days(before, (), *reported) | changed_days((), after, *reported)
    return Withdrawn(withdrawn, restored, frozenset(days))


def _spans(period: RevokedPeriod, table: StatementTable, condition: str) -> list[RowSpan]:
    """What reports read of the statements that hold."""
    if not table.start:
        return []
    columns = ", ".join((*table.keys, table.start, table.end, *table.facts))
    found = period.run(f"""
        SELECT {columns} FROM {table.name}
        WHERE holds AND {condition} AND coalesce({table.end} > {table.start}, true)
    """)
    at = len(table.keys)
    return [
        RowSpan(
            tuple(row[:at]),
            time_of(row[at]),
            None if row[at + 1] is None else time_of(row[at + 1]),
            tuple(row[at + 2 :]),
            at_midnight=table.view != "downtime",
        )
        for row in found
    ]
