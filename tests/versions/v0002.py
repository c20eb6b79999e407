"""Version 0002: partitions by day, kept statuses, changed days."""

from __future__ import annotations

from sqlalchemy import Engine, text

from sql.engine import writing
from tests.versions import v0001

FOLD = {"sqlite": "INSERT INTO fold_news DEFAULT VALUES", "postgresql": "SELECT fold_news()"}
RESULT = text("""
    INSERT INTO metricOutput (hostName, serviceFlavour, metricName, metricStatus, timestamp)
    VALUES ('ce01.example.org', 'CE', 'org.sam.Late', 'WARNING', :timestamp)
""")


def fill(engine: Engine) -> None:
    """As version 0001, with a horizon, and with results that are folded and such that are not."""
    v0001.fill(engine)
    with writing(engine) as connection:
        connection.execute(text("INSERT INTO horizon (day) VALUES ('2018-01-01')"))
        connection.execute(RESULT, {"timestamp": "2026-11-02T00:00:00Z"})
        connection.execute(text(FOLD[connection.dialect.name]))
        connection.execute(text("UPDATE changed_day SET change_no = 1 WHERE day < '2026-11-01'"))
        connection.execute(RESULT, {"timestamp": "2026-11-03T00:00:00Z"})
