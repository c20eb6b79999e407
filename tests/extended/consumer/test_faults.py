"""Faults that need privileges or other programs: full disks, a silent network, unsynced files."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import text

from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.database.version import upgrade
from tests.services import ServiceMissing, missing, needed
from tests.services.postgres import fresh_database, running_postgres, server_account
from tests.services.strace import strace
from tests.support.consumer.daemon import running
from tests.support.consumer.faults import LOADER_SESSIONS, SHORT_WAITS, WAITING, fill_up
from tests.support.consumer.site import Site, eventually, make_site, results, sqlite_site
from tests.support.network import own_network, silent
from tests.support.small_disk import small_disk

NOTICED_S = 60
DRAIN_S = 10
UNAVAILABLE, NO_PERMISSION = 69, 77
# Root may write any file unless it drops this capability.
AS_ANYBODY = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []


def spool_site(directory: Path, database: str) -> Site:
    directory.mkdir(exist_ok=True)
    return make_site(directory, database, [f"spool://{directory}/spool"])


def pending(site: Site) -> int:
    return DirectoryQueue(site.config.with_name("spool")).count()


def test_a_full_disk_under_the_state_directory_stops_nothing(tmp_path: Path) -> None:
    site = sqlite_site(tmp_path)
    with small_disk(tmp_path / "state", "size=64k") as state:
        assert site.drain().code == 0
        fill_up(state / "ballast")
        site.fill(*results(50))
        with running(site) as daemon:
            site.wait_for_rows(50)
            site.fill(*results(50, "org.sam.After"))
            site.wait_for_rows(100)
            assert daemon.stop().code == 0

    files = ("attempts", "claims")
    assert [daemon.log.count(f".{file}: No space left") for file in files] == [1, 1]


def load_through_a_full_disk(site: Site, disk: Path, words: str) -> None:
    with running(site) as daemon:
        site.fill(*results(10, "before"))
        site.wait_for_rows(10)
        fill_up(disk / "ballast")
        site.fill(*results(500, "after"))
        daemon.wait_for(words, WAITING)
        (disk / "ballast").unlink()

        site.wait_for_rows(510)
        assert daemon.stop().code == 0
    assert pending(site) == 0


def test_the_daemon_waits_while_the_disk_of_sqlite_is_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=4m") as disk:
        site = spool_site(tmp_path, f"sqlite:///{disk}/sam.db")
        load_through_a_full_disk(site, disk, "disk is full")
        assert site.scalar("PRAGMA integrity_check") == "ok"


def test_the_daemon_waits_while_the_disk_of_postgresql_is_full(tmp_path: Path) -> None:
    name = f"small_{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        server = stack.enter_context(needed(running_postgres()))
        # Not in pytest's directory, which the account of PostgreSQL cannot enter.
        disk = stack.enter_context(small_disk(server.directory / name, "size=48m"))
        shutil.chown(disk, server_account())
        server.execute(f"CREATE TABLESPACE {name} LOCATION '{disk}'")
        server.execute(f"CREATE DATABASE {name} TABLESPACE {name}")
        engine = make_engine(server.url(name))
        upgrade(engine)  # there, not as a copy
        engine.dispose()
        site = spool_site(tmp_path, server.url(name))
        load_through_a_full_disk(site, disk, "No space left on device")
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")
        server.execute(f"DROP TABLESPACE {name}")


def test_a_commit_that_is_not_on_disk_is_not_acked(tmp_path: Path) -> None:
    site = sqlite_site(tmp_path)
    site.fill(*results(10))
    other = sqlite3.connect(tmp_path / "sam.db")
    other.execute("PRAGMA user_version = 1")  # a new log is synced whatever the setting

    try:
        drain = site.command("run", "--drain", "--timeout", "1")
        drained = strace(drain, "fsync,fdatasync", "error=EIO", "1+")
    except ServiceMissing as reason:
        missing(reason.name, reason.how_to_get_it)
    other.close()

    assert drained.returncode == UNAVAILABLE, drained.stderr
    assert pending(site) == 10


@pytest.mark.parametrize("is_open", [False, True], ids=["from the start", "while it is in use"])
def test_a_file_of_sqlite_that_is_read_only_is_refused_or_waited_for(
    tmp_path: Path, is_open: bool
) -> None:
    site = spool_site(tmp_path, f"sqlite:///{tmp_path}/sam.db?{SHORT_WAITS['sqlite']}")
    log, file = tmp_path / "log", tmp_path / "sam.db"
    other = sqlite3.connect(file)
    if is_open:
        other.execute("BEGIN IMMEDIATE")
    else:
        file.chmod(0o444)
    site.fill(*results(10))
    with (
        log.open("w") as stderr,
        subprocess.Popen([*AS_ANYBODY, *site.command("run")], stderr=stderr) as daemon,
    ):
        if is_open:
            eventually(lambda: "database is locked" in log.read_text())
            # An open file stays writable; the mode takes effect when it is opened again.
            file.chmod(0o444)
            other.rollback()
            eventually(lambda: "readonly database" in log.read_text())
            for path in tmp_path.glob("sam.db*"):  # SQLite copies the mode to its other files
                path.chmod(0o644)
            site.wait_for_rows(10)
            daemon.terminate()
        code = daemon.wait(60)
    other.close()

    assert (code, pending(site)) == ((0, 0) if is_open else (NO_PERMISSION, 10))
    assert is_open or f"{file}: no permission to write" in log.read_text()


def test_silence_is_noticed_within_a_minute_and_loading_goes_on_after_it(tmp_path: Path) -> None:
    """The daemon sends into the silence; the drain waits for an answer when it begins."""
    with own_network(), needed(running_postgres()) as server:
        idle = spool_site(tmp_path / "idle", fresh_database(server))
        waiting = spool_site(tmp_path / "waiting", fresh_database(server))
        waiting.fill(*results(10))
        # A client that never notices: its server must, and then release the lock.
        vanished = make_engine(f"{waiting.database}?keepalives=0&tcp_user_timeout=0")
        at_lock = f"SELECT count(*) {LOADER_SESSIONS} AND wait_event_type = 'Lock'"
        with running(idle) as daemon, vanished.connect() as connection:
            idle.fill(*results(10, "before"))
            idle.wait_for_rows(10)
            connection.execute(text("LOCK TABLE metric_result IN EXCLUSIVE MODE"))
            drain = subprocess.Popen(waiting.command("run", "--drain", "--timeout", f"{DRAIN_S}"))
            eventually(lambda: waiting.scalar(at_lock))

            with silent(server.port):
                silent_since = time.monotonic()
                idle.fill(*results(10, "meanwhile"))
                daemon.wait_for(WAITING, timeout_s=NOTICED_S)
                code = drain.wait(silent_since + DRAIN_S + NOTICED_S - time.monotonic())

            idle.wait_for_rows(20)
            assert daemon.alive
            assert code == UNAVAILABLE
            assert waiting.drain().code == 0
            assert waiting.rows() == 10
            connection.invalidate()
        vanished.dispose()
