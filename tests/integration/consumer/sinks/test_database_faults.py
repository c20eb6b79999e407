"""`sam-consume run` while PostgreSQL fails: nothing is lost, nothing is duplicated."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest

from sam_pipeline.consumer.core.attempts import POISON
from sam_pipeline.sql.database.engine import make_engine, parse_url
from tests.services.activemq import ActiveMQServer
from tests.services.postgres import PASSWORD, PostgresServer
from tests.support.brokers.fault_proxy import FaultProxy
from tests.support.consumer.faults import (
    LOADER_SESSIONS,
    LOCK_TIMEOUT,
    SHORT_WAITS,
    WAITING,
    SpoolSite,
    bad_result,
    dead_letter_count,
    edit_database_url,
    end_sessions,
    logged_daemon,
    spool_site,
)
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, eventually, make_site, results, subscribe
from tests.support.database.postgres_proxy import StatementProxy

CANARY = "canary-4711"


@pytest.fixture
def spool(tmp_path: Path, postgres_url: str) -> SpoolSite:
    return spool_site(tmp_path, postgres_url)


PHASES = {
    "before anything is staged": [b"open_staging"],
    "before the rows are copied": [b"COPY "],
    "between the copy and the load": [b"COPY ", b'metricoutput_load"()'],
    "before a dead letter is kept": [b"COPY ", b"INTO dead_letter"],
    "at the commit": [b"COPY ", b"COMMIT"],
}


@pytest.mark.parametrize("phase", PHASES)
def test_a_backend_terminated_in_any_phase_loses_and_duplicates_nothing(
    spool: SpoolSite, postgres: PostgresServer, phase: str
) -> None:
    ended: list[int] = []
    with StatementProxy(
        postgres.port, PHASES[phase], act=lambda: ended.append(end_sessions(spool.site))
    ) as proxy:
        edit_database_url(spool.site, f":{postgres.port}/", f":{proxy.port}/")
        spool.fill([*results(20), bad_result()])
        with spool.daemon() as daemon:
            daemon.wait_for(WAITING)
            spool.wait_until_loaded(rows=20, dead_letters=1)

    assert ended == [1]


def test_a_backend_terminated_during_the_load_loses_and_duplicates_nothing(
    spool: SpoolSite,
) -> None:
    edit_database_url(spool.site, LOCK_TIMEOUT, "60s")
    with spool.daemon() as daemon:
        with table_locked(spool.site, "metric_result"):
            spool.fill([*results(20), bad_result()])
            wait_for_a_session_at_a_lock(spool.site)
            end_sessions(spool.site)
            daemon.wait_for(WAITING)

        spool.wait_until_loaded(rows=20, dead_letters=1)


def test_a_commit_whose_confirmation_is_lost_is_applied_once(
    spool: SpoolSite, postgres: PostgresServer
) -> None:
    with StatementProxy(postgres.port, PHASES["at the commit"], eats_answer=True) as proxy:
        edit_database_url(spool.site, f":{postgres.port}/", f":{proxy.port}/")
        spool.fill([*results(20), bad_result()])
        with spool.daemon() as daemon:
            daemon.wait_for(WAITING)
            # Committed already, but the consumer does not know.
            committed = spool.site.rows(), dead_letter_count(spool.site)
            spool.wait_until_loaded(rows=20, dead_letters=1)

        assert proxy.acted.is_set()
    assert committed == (20, 1)


def test_the_daemon_waits_and_reconnects_while_a_server_is_read_only_after_a_failover(
    spool: SpoolSite, postgres: PostgresServer
) -> None:
    database = parse_url(spool.site.database).database
    with spool.daemon() as daemon:
        spool.fill(results(10, "before"))
        spool.wait_until_loaded(rows=10)
        postgres.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
        end_sessions(spool.site)
        spool.fill(results(10, "after"))
        daemon.wait_for("read-only transaction", WAITING)
        # Existing sessions stay read-only, as after a failover to another server.
        postgres.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only")

        spool.wait_until_loaded(rows=20)


def test_a_load_blocked_by_a_lock_is_retried_and_heart_beats_continue(
    tmp_path: Path, postgres_url: str, activemq: ActiveMQServer
) -> None:
    destination = f"/topic/grid.probe.{uuid.uuid4().hex}"
    with FaultProxy(activemq.port) as proxy:
        site = make_site(
            tmp_path, f"{postgres_url}?{SHORT_WAITS['postgresql']}", [proxy.url], destination
        )
        subscribe(activemq, site.name, destination)
        with logged_daemon(site) as daemon:
            with table_locked(site, "metric_result"):
                publish(activemq.host, activemq.port, destination, results(10))
                daemon.wait_for("lock timeout", WAITING)
                wait_for_a_session_at_a_lock(site)
                before = proxy.sent_bytes
                # Nothing is acked, so only heart-beats increase the number of bytes.
                eventually(lambda: proxy.sent_bytes > before)

            site.wait_for_rows(10)
        assert proxy.connections == 1


def test_a_process_killed_while_it_waits_for_a_lock_blames_no_message(spool: SpoolSite) -> None:
    spool.fill(results(40))
    with table_locked(spool.site, "metric_result"):
        for _ in range(POISON + 1):
            with spool.site.daemon() as daemon:
                wait_for_a_session_at_a_lock(spool.site)
                daemon.kill()
                daemon.wait()
            end_sessions(spool.site)

    with spool.daemon():
        spool.wait_until_loaded(rows=40)
    assert dead_letter_count(spool.site) == 0


def test_a_wrong_password_is_reported_without_its_value_and_loading_resumes_once_it_is_right(
    spool: SpoolSite, postgres: PostgresServer
) -> None:
    user = f"guest_loader_{uuid.uuid4().hex[:8]}"
    postgres.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'another' IN ROLE sam_loader")
    edit_database_url(spool.site, f"loader_login:{PASSWORD}", f"{user}:{CANARY}")
    spool.fill(results(10))
    with spool.daemon() as daemon:
        (line, *_) = daemon.wait_for("password authentication failed", WAITING)
        postgres.execute(f"ALTER ROLE {user} PASSWORD '{CANARY}'")

        spool.wait_until_loaded(rows=10)
    assert f'user "{user}"' in line
    assert f"{postgres.host}:{postgres.port}" in line
    assert CANARY not in daemon.log


def test_the_daemon_waits_for_a_free_connection(spool: SpoolSite, postgres: PostgresServer) -> None:
    spool.fill(results(10))
    with all_connections_taken(postgres), spool.daemon() as daemon:
        daemon.wait_for("too many clients", WAITING)
    with spool.daemon():
        spool.wait_until_loaded(rows=10)


@pytest.mark.parametrize("rights", ["INSERT", "SELECT"])
def test_nothing_is_loaded_while_dead_letters_cannot_be_written(
    spool: SpoolSite, rights: str
) -> None:
    spool.site.execute(f"REVOKE {rights} ON dead_letter FROM sam_loader")
    spool.fill([*results(10), bad_result()])
    with spool.daemon() as daemon:
        daemon.wait_for("ERROR", "permission denied for table dead_letter", WAITING)
        kept = spool.site.rows(), len(spool.pending())
        spool.site.execute(f"GRANT {rights} ON dead_letter TO sam_loader")

        spool.wait_until_loaded(rows=10, dead_letters=1)
    assert kept == (0, 11)


def wait_for_a_session_at_a_lock(site: Site) -> None:
    eventually(
        lambda: site.scalar(f"SELECT count(*) {LOADER_SESSIONS} AND wait_event = 'relation'")
    )


@contextlib.contextmanager
def table_locked(site: Site, table: str) -> Iterator[None]:
    engine = make_engine(site.database)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield
    engine.dispose()


@contextlib.contextmanager
def all_connections_taken(server: PostgresServer) -> Iterator[None]:
    taken = []
    login = {"host": server.host, "port": server.port, "user": server.user}
    try:
        with pytest.raises(psycopg2.OperationalError, match="too many clients"):
            while True:
                taken.append(psycopg2.connect(**login, password=server.password, dbname="postgres"))
        yield
    finally:
        for connection in taken:
            connection.close()
