"""Loaders of topology and downtimes mark the days that become due, beside each other and reports.

Only on PostgreSQL: SQLite has one writer at a time.
"""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, Engine, text

from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.errors import DatabaseAway
from sam_pipeline.sql.loading.fold import take_changes
from tests.support.database.dialects import only_on
from tests.support.database.sql_rows import query

MARKED = "SELECT CAST(day AS text) FROM changed_day WHERE change_no IS NULL ORDER BY day"
DAYS = ["2026-11-18", "2026-11-19", "2026-11-20"]
IN_A_SECOND = text("SET LOCAL lock_timeout = '1s'")


def mark(connection: Connection, day: str) -> None:
    """What the triggers of a loader do for a row that counts on one day."""
    connection.execute(
        text(
            "SELECT mark_days(ARRAY[CAST(:day AS timestamptz)], ARRAY[CAST(:end AS timestamptz)])"
        ),
        {"day": f"{day}T00:00:00Z", "end": f"{day}T00:00:01Z"},
    )


@pytest.fixture
def marked(engine: Engine) -> Engine:
    """Three days are due."""
    with writing(engine) as connection:
        for day in DAYS:
            connection.execute(text("INSERT INTO changed_day (day) VALUES (:day)"), {"day": day})
    return engine


@only_on("postgresql")
def test_loaders_mark_days_that_are_due_in_any_order_without_a_deadlock(marked: Engine) -> None:
    with writing(marked) as one, writing(marked) as other:
        for connection, day in ((one, 0), (other, 1), (one, 1), (other, 0)):
            connection.execute(IN_A_SECOND)
            mark(connection, DAYS[day])

    assert query(marked, MARKED) == [(day,) for day in DAYS]


@only_on("postgresql")
def test_a_report_waits_for_a_loader_whose_day_was_due_before(marked: Engine) -> None:
    """Otherwise it would number a change that it does not read."""
    with writing(marked) as loader:
        mark(loader, DAYS[0])
        with (
            pytest.raises(DatabaseAway, match="lock timeout"),
            writing(marked) as reporter,
        ):
            reporter.execute(IN_A_SECOND)
            take_changes(reporter)

    with writing(marked) as reporter:
        take_changes(reporter)
    assert query(marked, MARKED) == []
    with writing(marked) as loader:
        mark(loader, DAYS[1])
    assert query(marked, MARKED) == [(DAYS[1],)]
