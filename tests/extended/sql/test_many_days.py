"""Results of years of days, on a PostgreSQL server with little room for locks.

The days are to the room as ten years are to that of a server with the default settings, which takes
minutes to make so many partitions. The room belongs to all sessions of the server: whoever fills it
also stops other databases.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import psycopg2
import pytest
from sqlalchemy import Engine, make_url

from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.schema.records.text import Record
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.checks.check import find_problems
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.database.version import upgrade
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.load import load
from sam_pipeline.sql.loading.said import said_in_class
from tests.services import needed
from tests.services.postgres import fresh_database, running_postgres
from tests.support.builders import metric_message, metric_result
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import query

DAYS = 690
NOW = datetime.now(UTC).replace(microsecond=0)
LIMITS = Limits(past=timedelta(days=DAYS + 1))
LITTLE_ROOM = {
    "max_connections": "20",
    "max_locks_per_transaction": "64",
    "max_wal_senders": "0",
    "max_worker_processes": "1",
    "autovacuum_max_workers": "1",
}
"""For 1,500 locks; a day takes seven to fill. By default it is 7,800."""


@pytest.fixture(scope="module")
def roomy() -> Iterator[Engine]:
    """A database without partitions, on a server of its own."""
    with needed(running_postgres(LITTLE_ROOM)) as server:
        engine = make_engine(fresh_database(server))
        upgrade(engine)
        yield engine
        engine.dispose()


@contextmanager
def bystander(engine: Engine) -> Iterator[None]:
    """A client of another database of the server, which must not notice anything."""
    stop = threading.Event()
    errors: list[str] = []
    url = make_url(engine.url.render_as_string(hide_password=False)).set(database="postgres")
    dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)

    def work() -> None:
        done = 0
        while not (stop.wait(0.02) and done):
            try:
                # A new session needs locks of its own before it can do anything.
                connection = psycopg2.connect(dsn)
                with connection, connection.cursor() as cursor:
                    cursor.execute("CREATE TABLE bystander (a integer PRIMARY KEY, b text UNIQUE)")
                    cursor.execute("SELECT count(*) FROM pg_class")
                    cursor.execute("DROP TABLE bystander")
                connection.close()
                done += 1
            except psycopg2.Error as error:
                errors.append(str(error))
                return

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert errors == []


def on_days(host: str, days: range, status: str = "OK") -> list[Record]:
    """A result of each of these days, counted back from today."""
    times = [NOW - timedelta(days=n) for n in days]
    return [
        metric_result(hostName=host, metricStatus=status, timestamp=f"{time:%Y-%m-%dT%H:%M:%SZ}")
        for time in times
    ]


def test_years_load_without_other_clients_noticing(roomy: Engine) -> None:
    years = range(DAYS)
    batches: dict[str, list[Message]] = {
        "one record in each message": [
            metric_message(record) for record in on_days("a.example.org", years)
        ],
        "all records in one message": [metric_message(*on_days("b.example.org", years))],
        "late results": [metric_message(*on_days("b.example.org", range(9, DAYS, 9), "CRITICAL"))],
    }
    loaded: dict[str, tuple[int, int]] = {}
    with acting_as("loader", roomy) as loader, bystander(roomy):
        for name, messages in batches.items():
            outcome = load(loader, Catalogue(loader), messages, NOW, LIMITS)
            loaded[name] = (outcome.rows, outcome.dead_letters.total())
            fold_all(loader)

    assert loaded == {
        "one record in each message": (DAYS, 0),
        "all records in one message": (DAYS, 0),
        "late results": (len(range(9, DAYS, 9)), 0),
    }
    since = query(roomy, "SELECT host_name, since FROM current_status ORDER BY host_name")
    assert since == [
        ("a.example.org", format_time(NOW - timedelta(days=DAYS - 1))),
        ("b.example.org", format_time(NOW - timedelta(days=8))),
    ]
    catalogue = Catalogue(roomy)
    [view] = catalogue.find_all(["metricoutput"]).values()
    with acting_as("reader", roomy) as reader, bystander(roomy):
        [said] = said_in_class(reader, view, NOW - timedelta(days=7), homes=defaultdict(list))
    assert said.records == sum(rows for rows, _ in loaded.values())
    # Whoever reads all days needs more room, which the check names.
    [problem] = [text for text, _ in find_problems(roomy) if "max_locks" in text]
    assert f"all {DAYS} days" in problem
    assert "set it to 512" in problem
