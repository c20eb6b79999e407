"""A database that fails: nothing is acked meanwhile, nothing is lost or stored twice."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from sam_pipeline.consumer.core.recovery import POISON
from sam_pipeline.schema.messages.message import new_message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.sql.database.engine import make_engine, parse_url
from tests.services.postgres import PostgresServer
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.daemon import running
from tests.support.consumer.faults import (
    LOADER_SESSIONS,
    LOCK_TIMEOUT,
    SHORT_WAITS,
    WAITING,
    another_writer,
    end_sessions,
)
from tests.support.consumer.site import Site, eventually, make_site, results
from tests.support.database.own_class import make_class
from tests.support.database.postgres_proxy import StatementProxy

BAD = metric_message(metric_result(metricStatus="FINE"))
UNAVAILABLE, NO_PERMISSION = 69, 77


@pytest.fixture
def site(tmp_path: Path, own_url: str) -> Site:
    """A site that waits for locks only briefly."""
    url = f"{own_url}?{SHORT_WAITS[own_url.partition('+')[0].partition(':')[0]]}"
    return make_site(tmp_path, url, [f"spool://{tmp_path}/spool"])


def pending(site: Site) -> int:
    return DirectoryQueue(site.config.with_name("spool")).count()


PHASES = {
    "before anything is staged": [b"open_staging"],
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


DEFERRED = """
    CREATE FUNCTION not_negative() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.minutes < 0 THEN
            RAISE check_violation USING MESSAGE = 'minutes is ' || NEW.minutes;
        END IF;
        RETURN NEW;
    END $$;
    CREATE CONSTRAINT TRIGGER not_negative AFTER INSERT ON "kept waiting"
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION not_negative();
    GRANT INSERT ON waiting TO sam_loader;
"""


@pytest.mark.parametrize("own_url", ["postgresql"], indirect=True)
def test_a_row_that_is_refused_at_the_commit_is_the_only_dead_letter(site: Site) -> None:
    engine = make_engine(site.database)
    make_class(engine, "waiting", ce="text NOT NULL", minutes="integer")
    engine.dispose()
    site.execute(DEFERRED)
    for start in range(0, 200, 50):
        numbers = [number if number != 121 else -1 for number in range(start, start + 50)]
        records = [{"ce": f"ce{number}", "minutes": number} for number in numbers]
        site.fill(new_message("waiting", json.dumps(records), content_type="application/json"))

    assert site.drain().code == 65

    assert site.scalar("SELECT count(*) FROM waiting") == 199
    [error] = site.column("SELECT error FROM dead_letter")
    assert error.startswith("waiting: 23514: minutes is -1")


def wait_for_a_session_at_a_lock(site: Site) -> None:
    waiting = f"SELECT count(*) {LOADER_SESSIONS} AND wait_event = 'relation'"
    eventually(lambda: site.scalar(waiting))


@pytest.mark.parametrize("replaced", [False, True])
def test_results_go_to_the_sqlite_file_that_has_the_name(small_site: Site, replaced: bool) -> None:
    """Deleted, it counts as away; neither way is anything acked that goes nowhere."""
    database = small_site.config.with_name("sam.db")
    backup = shutil.copy(database, database.with_name("backup.db"))
    with running(small_site) as daemon:
        small_site.fill(*results(2, "org.sam.Before"))
        small_site.wait_for_rows(2)
        if not replaced:
            database.unlink()
            small_site.fill(*results(3, "org.sam.After"))
            daemon.wait_for(WAITING)
            assert pending(small_site) == 3
        for name in ("sam.db-wal", "sam.db-shm"):
            database.with_name(name).unlink(missing_ok=True)
        Path(backup).rename(database)
        if replaced:
            small_site.fill(*results(3, "org.sam.After"))
        small_site.wait_for_rows(3)
        eventually(lambda: pending(small_site) == 0)
        assert daemon.stop().code == 0

    assert small_site.rows() == 3
