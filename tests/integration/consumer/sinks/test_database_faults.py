"""A database that fails: nothing is acked meanwhile, nothing is lost or stored twice."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from sam_pipeline.consumer.core.attempts import POISON
from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.sql.database.engine import make_engine, parse_url
from tests.services.activemq import ActiveMQServer
from tests.services.postgres import PASSWORD, PostgresServer
from tests.support.brokers.fault_proxy import FaultProxy
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.daemon import running
from tests.support.consumer.faults import (
    LOADER_SESSIONS,
    LOCK_TIMEOUT,
    SHORT_WAITS,
    WAITING,
    end_sessions,
)
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, eventually, make_site, results, subscribe
from tests.support.database.postgres_proxy import StatementProxy

CANARY = "canary-4711"
BAD = metric_message(metric_result(metricStatus="FINE"))
UNAVAILABLE, NO_PERMISSION, CONFIG = 69, 77, 78


def impatient(directory: Path, url: str, broker: str = "", topic: str = "/topic/none") -> Site:
    """A site that waits for locks only briefly, with a spool unless a broker is given."""
    url = f"{url}?{SHORT_WAITS[url.partition('+')[0].partition(':')[0]]}"
    return make_site(directory, url, [broker or f"spool://{directory}/spool"], topic)


@pytest.fixture
def site(tmp_path: Path, own_url: str) -> Site:
    return impatient(tmp_path, own_url)


def pending(site: Site) -> int:
    return DirectoryQueue(site.config.with_name("spool")).count()


PHASES = {
    "before anything is staged": [b"open_staging"],
    "before the rows are copied": [b"COPY "],
    "between the copy and the load": [b"COPY ", b'metricoutput_load"()'],
    "before a dead letter is kept": [b"COPY ", b"INTO dead_letter"],
    "at the commit": [b"COPY ", b"COMMIT"],
    "after the commit": [b"COPY ", b"COMMIT"],
}


@pytest.mark.parametrize("own_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("phase", PHASES)
def test_a_session_that_ends_in_any_phase_loses_and_duplicates_nothing(
    site: Site, postgres: PostgresServer, phase: str
) -> None:
    confirmed = phase != "after the commit"  # the answer is lost
    act: Callable[[], object] = (lambda: end_sessions(site)) if confirmed else (lambda: None)
    site.fill(*results(20), BAD)
    with StatementProxy(postgres.port, PHASES[phase], act, eats_answer=not confirmed) as proxy:
        site.edit(f":{postgres.port}/", f":{proxy.port}/")
        drained = site.drain()

        assert proxy.acted.is_set()
    assert WAITING in drained.log
    assert (site.rows(), site.letters(), pending(site)) == (20, 1, 0)
    counts = [drained.summary[key] for key in ("rows", "duplicates", "repeated_dead_letters")]
    assert counts == ([20, 0, 0] if confirmed else [0, 20, 1])


@contextmanager
def another_writer(site: Site) -> Iterator[None]:
    other = sqlite3.connect(site.config.with_name("sam.db"))
    try:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.rollback()
    finally:
        other.close()


@contextmanager
def locked(site: Site) -> Iterator[None]:
    engine = make_engine(site.database)
    with engine.begin() as connection:
        connection.exec_driver_sql("LOCK TABLE metric_result IN ACCESS EXCLUSIVE MODE")
        yield
    engine.dispose()


def without(right: str) -> Callable[[Site], AbstractContextManager[None]]:
    @contextmanager
    def revoked(site: Site) -> Iterator[None]:
        site.execute(f"REVOKE {right} ON dead_letter FROM sam_loader")
        yield
        site.execute(f"GRANT {right} ON dead_letter TO sam_loader")

    return revoked


@pytest.mark.parametrize(
    ("own_url", "failing", "code", "words"),
    [
        ("sqlite", another_writer, UNAVAILABLE, "database is locked"),
        ("postgresql", locked, UNAVAILABLE, "lock timeout"),
        ("postgresql", without("INSERT"), NO_PERMISSION, "permission denied for table dead_letter"),
        ("postgresql", without("SELECT"), NO_PERMISSION, "permission denied for table dead_letter"),
    ],
    ids=["locked file", "locked table", "no INSERT", "no SELECT"],
    indirect=["own_url"],
)
def test_while_a_batch_cannot_be_stored_nothing_is_acked_and_afterwards_it_is_loaded_once(
    site: Site, failing: Callable[[Site], AbstractContextManager[None]], code: int, words: str
) -> None:
    site.fill(*results(10), BAD)
    with failing(site):
        waited = site.drain(timeout_s=0.5)
        kept = pending(site)
    drained = site.drain()

    assert (waited.code, kept) == (code, 11)
    assert words in waited.log
    assert (drained.code, site.rows(), site.letters(), pending(site)) == (65, 10, 1, 0)


@pytest.mark.parametrize("own_url", ["postgresql"], indirect=True)
def test_the_daemon_goes_on_after_a_failover_and_after_its_session_ends_during_a_load(
    site: Site, postgres: PostgresServer
) -> None:
    site.edit(LOCK_TIMEOUT, "60s")
    database = parse_url(site.database).database
    with running(site) as daemon:
        with locked(site):
            site.fill(*results(10, "before"))
            wait_for_a_session_at_a_lock(site)
            end_sessions(site)
            daemon.wait_for(WAITING)
        site.wait_for_rows(10)
        postgres.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
        end_sessions(site)
        site.fill(*results(10, "after"))
        daemon.wait_for("read-only transaction", WAITING)
        # Existing sessions stay read-only, as after a failover to another server.
        postgres.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only")

        site.wait_for_rows(20)
        assert daemon.stop().code == 0
    assert (site.rows(), pending(site)) == (20, 0)


def test_heart_beats_continue_while_a_load_is_blocked(
    tmp_path: Path, postgres_url: str, activemq: ActiveMQServer
) -> None:
    topic = f"/topic/grid.probe.{uuid.uuid4().hex}"
    with FaultProxy(activemq.port) as proxy:
        site = impatient(tmp_path, postgres_url, proxy.url, topic)
        site.configure("heart_beat_s = 1")
        subscribe(activemq, site.name, topic)
        with running(site) as daemon:
            with locked(site):
                publish(activemq.host, activemq.port, topic, results(10))
                daemon.wait_for("lock timeout", WAITING)
                wait_for_a_session_at_a_lock(site)
                before = proxy.sent_bytes
                # Nothing is acked, so only heart-beats increase the number of bytes.
                eventually(lambda: proxy.sent_bytes > before)

            site.wait_for_rows(10)
        assert proxy.connections == 1


@pytest.mark.parametrize("own_url", ["postgresql"], indirect=True)
def test_a_process_killed_while_it_waits_for_a_lock_blames_no_message(site: Site) -> None:
    site.fill(*results(40))
    with locked(site):
        for _ in range(POISON):
            with running(site):
                wait_for_a_session_at_a_lock(site)
            end_sessions(site)

    assert site.drain().code == 0
    assert (site.rows(), site.letters()) == (40, 0)


@pytest.mark.parametrize("own_url", ["postgresql"], indirect=True)
def test_a_wrong_password_is_reported_without_its_value_and_loading_resumes_once_it_is_right(
    site: Site, postgres: PostgresServer
) -> None:
    user = f"guest_loader_{uuid.uuid4().hex[:8]}"
    postgres.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'another' IN ROLE sam_loader")
    site.edit(f"loader_login:{PASSWORD}", f"{user}:{CANARY}")
    site.fill(*results(10))

    refused = site.drain(timeout_s=0.5)
    postgres.execute(f"ALTER ROLE {user} PASSWORD '{CANARY}'")
    loaded = site.drain()

    [line, *_] = [line for line in refused.log.splitlines() if WAITING in line]
    for words in (f'user "{user}"', f"{postgres.host}:{postgres.port}", "authentication failed"):
        assert words in line
    assert CANARY not in refused.log
    assert (refused.code, loaded.code, site.rows()) == (NO_PERMISSION, 0, 10)


def test_a_reader_of_an_sqlite_file_does_not_block_loading(small_site: Site) -> None:
    reader = sqlite3.connect(small_site.config.with_name("sam.db"), isolation_level=None)
    reader.execute("BEGIN")
    count = reader.execute("SELECT count(*) FROM metricOutput").fetchone()
    small_site.fill(*results(10))

    drained = small_site.drain(timeout_s=0.5)

    assert (drained.code, drained.summary["rows"], "waiting" in drained.log) == (0, 10, False)
    assert reader.execute("SELECT count(*) FROM metricOutput").fetchone() == count == (0,)
    reader.close()


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_database_without_schema_or_file_is_refused(small_site: Site, is_empty: bool) -> None:
    file = small_site.config.with_name("sam.db")
    file.unlink()
    if is_empty:
        sqlite3.connect(file).close()
    small_site.fill(*results(1))

    drained = small_site.drain()

    assert (drained.code, pending(small_site)) == (CONFIG, 1)
    assert "sam-db upgrade" in drained.log


def wait_for_a_session_at_a_lock(site: Site) -> None:
    waiting = f"SELECT count(*) {LOADER_SESSIONS} AND wait_event = 'relation'"
    eventually(lambda: site.scalar(waiting))
