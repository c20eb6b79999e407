"""`sam-consume run` with a database that is unavailable at times."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tests.services.postgres import PostgresServer
from tests.support.consumer.site import Site, eventually, fill_spool, make_site, results, stop


def spool_site(directory: Path, database: str) -> tuple[Site, Path]:
    spool = directory / "spool"
    return make_site(directory, database, [f"spool://{spool}"]), spool


def test_the_daemon_waits_for_a_killed_database(
    tmp_path: Path, mortal_postgres: PostgresServer, mortal_url: str
) -> None:
    site, spool = spool_site(tmp_path, mortal_url)
    with site.daemon() as process:
        fill_spool(spool, results(100, "before"))
        site.wait_for_rows(100)
        mortal_postgres.kill()
        try:
            fill_spool(spool, results(100, "meanwhile"))
        finally:
            mortal_postgres.restart()

        site.wait_for_rows(200)
        assert process.poll() is None


def test_the_daemon_waits_for_a_database_that_is_down_at_start_up(
    tmp_path: Path, mortal_postgres: PostgresServer, mortal_url: str
) -> None:
    site, spool = spool_site(tmp_path, mortal_url)
    fill_spool(spool, results(10))
    mortal_postgres.kill()
    try:
        with site.daemon() as process:
            # Locks on elements show that the daemon is running and waits.
            eventually(lambda: list(spool.glob("*/*.lck")))
            mortal_postgres.restart()
            site.wait_for_rows(10)
            assert process.poll() is None
    finally:
        mortal_postgres.restart()


def test_a_drain_gives_up_on_an_unavailable_database_and_loses_nothing(
    tmp_path: Path, mortal_postgres: PostgresServer, mortal_url: str
) -> None:
    site, spool = spool_site(tmp_path, mortal_url)
    fill_spool(spool, results(10))
    mortal_postgres.kill()
    try:
        drained = site.drain(timeout_s=1)
    finally:
        mortal_postgres.restart()

    assert drained.code == 69
    assert site.drain().code == 0
    assert site.rows() == 10


def test_sigterm_ends_a_consumer_that_waits_for_its_database(
    tmp_path: Path, mortal_postgres: PostgresServer, mortal_url: str
) -> None:
    site, spool = spool_site(tmp_path, mortal_url)
    fill_spool(spool, results(10))
    mortal_postgres.kill()
    try:
        with site.daemon() as process:
            eventually(lambda: list(spool.glob("*/*.lck")))
            code, took_s = stop(process)
    finally:
        mortal_postgres.restart()

    assert code == 0
    assert took_s < 10
    assert len(list(spool.glob("*/*"))) == 10


def test_sigterm_ends_a_consumer_whose_database_call_hangs(tmp_path: Path) -> None:
    site, spool = spool_site(tmp_path, f"sqlite:///{tmp_path}/sam.db")
    fill_spool(spool, results(10))
    with site.daemon() as process, sqlite3.connect(tmp_path / "sam.db") as other:
        other.execute("BEGIN IMMEDIATE")
        eventually(lambda: list(spool.glob("*/*.lck")))
        code, took_s = stop(process)
        other.rollback()
    other.close()

    assert code == 0
    assert took_s < 10
    assert site.drain().summary["rows"] == 10


def test_a_database_without_schema_is_refused(tmp_path: Path) -> None:
    site, spool = spool_site(tmp_path, f"sqlite:///{tmp_path}/sam.db")
    for file in tmp_path.glob("sam.db*"):
        file.unlink()
    sqlite3.connect(tmp_path / "sam.db").close()
    fill_spool(spool, results(1))

    drained = site.drain()

    assert drained.code == 78
    assert "sam-db upgrade" in drained.log


def test_a_missing_database_file_is_refused(tmp_path: Path) -> None:
    site, _ = spool_site(tmp_path, f"sqlite:///{tmp_path}/sam.db")
    for file in tmp_path.glob("sam.db*"):
        file.unlink()

    assert site.drain().code == 78
