"""`sam-consume run` while PostgreSQL is stopped or killed repeatedly, or its disk is full.

The oracle of the kills: every published message is either one row or one dead letter, and the
broker has none left.
"""

from __future__ import annotations

import random
import shutil
import signal
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from sam_pipeline.schema.messages.message import Message
from sam_pipeline.sql.database.engine import make_engine
from tests.services.activemq import ActiveMQServer
from tests.services.postgres import PostgresServer, server_account
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.faults import (
    WAITING,
    dead_letter_count,
    fill_up,
    logged_daemon,
    spool_site,
)
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import (
    WAIT_S,
    Site,
    eventually,
    make_site,
    results,
    stop,
    subscribe,
)
from tests.support.small_disk import small_disk

KILLS = 10
SEED = 11
START = 1_795_000_000
BAD_EVERY = 10


@dataclass
class Publisher:
    """Publishes numbered results, every tenth of them bad, in a thread until the block ends."""

    broker: ActiveMQServer
    destination: str
    good: set[str] = field(default_factory=set)
    bad: set[str] = field(default_factory=set)

    @contextmanager
    def publishing(self) -> Iterator[None]:
        stopping = threading.Event()
        thread = threading.Thread(target=self._run, args=(stopping,))
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()

    def _run(self, stopping: threading.Event) -> None:
        for start in count(step=20):
            messages = [self._message(number) for number in range(start, start + 20)]
            publish(self.broker.host, self.broker.port, self.destination, messages)
            if stopping.wait(0.1):
                return

    def _message(self, number: int) -> Message:
        status = "OK" if number % BAD_EVERY else "FINE"
        result = metric_result(timestamp=str(START + number), metricStatus=status)
        message = metric_message(result)
        (self.good if status == "OK" else self.bad).add(message.message_id)
        return message


def ids(site: Site, query: str) -> Counter[str]:
    engine = make_engine(site.database)
    with engine.connect() as connection:
        counts = Counter(connection.exec_driver_sql(query).scalars())
    engine.dispose()
    return counts


def test_messages_stay_at_the_broker_until_a_stopped_server_is_back(
    tmp_path: Path, mortal_postgres: PostgresServer, mortal_url: str, activemq: ActiveMQServer
) -> None:
    destination = f"/topic/grid.probe.{uuid.uuid4().hex}"
    site = make_site(tmp_path, mortal_url, [activemq.url], destination)
    subscribe(activemq, site.name, destination)
    mortal_postgres.process.stop(signal.SIGQUIT)  # "immediate"
    try:
        publish(activemq.host, activemq.port, destination, results(50))
        with logged_daemon(site) as daemon:
            daemon.wait_for("Connection refused", WAITING)
        # The daemon was killed with unacked messages, which the broker delivers again.
        with logged_daemon(site):
            mortal_postgres.restart()

            site.wait_for_rows(50)
    finally:
        mortal_postgres.restart()
    assert site.rows() == 50


def test_a_database_that_returns_with_another_schema_ends_the_daemon(
    tmp_path: Path, mortal_postgres: PostgresServer, mortal_url: str
) -> None:
    spool = spool_site(tmp_path, mortal_url)
    spool.site.execute("UPDATE alembic_version SET version_num = '9999'")
    mortal_postgres.kill()
    try:
        with spool.daemon() as daemon:
            daemon.wait_for(WAITING)
            mortal_postgres.restart()

            assert daemon.process.wait(WAIT_S) == 78
    finally:
        mortal_postgres.restart()
    assert "schema version 9999 is newer" in daemon.log


def test_ten_server_kills_under_load_lose_and_duplicate_nothing(
    tmp_path: Path, mortal_postgres: PostgresServer, mortal_url: str, activemq: ActiveMQServer
) -> None:
    moments = random.Random(SEED)
    destination = f"/topic/grid.probe.{uuid.uuid4().hex}"
    site = make_site(tmp_path, mortal_url, [activemq.url], destination)
    subscribe(activemq, site.name, destination)
    publisher = Publisher(activemq, destination)
    with logged_daemon(site) as daemon:
        with publisher.publishing():
            for _ in range(KILLS):
                site.wait_for_rows(site.rows() + moments.randint(1, 40))
                mortal_postgres.kill()
                mortal_postgres.restart()
        published = len(publisher.good | publisher.bad)
        eventually(lambda: site.rows() + dead_letter_count(site) == published)
        code, _ = stop(daemon.process)
    left_at_the_broker = site.drain().summary["messages"]

    assert code == 0
    assert ids(site, "SELECT messageId FROM metricOutput") == Counter(publisher.good)
    assert ids(site, "SELECT message_id FROM dead_letter") == Counter(publisher.bad)
    assert left_at_the_broker == 0


def test_the_daemon_waits_while_the_database_disk_is_full(
    tmp_path: Path, mortal_postgres: PostgresServer
) -> None:
    name = f"small_{uuid.uuid4().hex[:8]}"
    # Not in pytest's directory, which the account of PostgreSQL cannot enter.
    with small_disk(mortal_postgres.directory / name, "size=48m") as disk:
        shutil.chown(disk, server_account())
        mortal_postgres.execute(f"CREATE TABLESPACE {name} LOCATION '{disk}'")
        mortal_postgres.execute(f"CREATE DATABASE {name} TABLESPACE {name}")
        try:
            spool = spool_site(tmp_path, mortal_postgres.url(name))
            with spool.daemon() as daemon:
                spool.fill(results(10, "before"))
                spool.wait_until_loaded(rows=10)
                fill_up(disk / "ballast")
                spool.fill(results(500, "after"))
                daemon.wait_for("No space left on device", WAITING)
                (disk / "ballast").unlink()

                spool.wait_until_loaded(rows=510)
        finally:
            mortal_postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")
            mortal_postgres.execute(f"DROP TABLESPACE {name}")
