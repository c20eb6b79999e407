"""`sam-consume run` on an SQLite file that is locked, read-only or on a full disk."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.services import ServiceMissing, missing
from tests.services.strace import strace
from tests.support.consumer.faults import WAITING, SpoolSite, bad_result, fill_up, spool_site
from tests.support.consumer.site import WAIT_S, results
from tests.support.small_disk import small_disk

# Root may write any file unless it drops this capability.
AS_ANYBODY = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []


@pytest.fixture
def spool(tmp_path: Path) -> SpoolSite:
    return spool_site(tmp_path, f"sqlite:///{tmp_path}/sam.db")


@contextmanager
def written_by_another(file: Path) -> Iterator[None]:
    other = sqlite3.connect(file)
    try:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.rollback()
    finally:
        other.close()


def test_a_load_is_retried_while_another_writer_holds_the_file(
    spool: SpoolSite, tmp_path: Path
) -> None:
    with spool.daemon() as daemon:
        with written_by_another(tmp_path / "sam.db"):
            spool.fill([*results(10), bad_result()])
            daemon.wait_for("database is locked", WAITING)
            kept = len(spool.pending())

        spool.wait_until_loaded(rows=10, dead_letters=1)
    assert kept == 11


def test_a_reader_of_the_file_does_not_block_loading(spool: SpoolSite, tmp_path: Path) -> None:
    reader = sqlite3.connect(tmp_path / "sam.db", isolation_level=None)
    reader.execute("BEGIN")
    count = reader.execute("SELECT count(*) FROM metricOutput").fetchone()
    with spool.daemon() as daemon:
        spool.fill(results(10))
        spool.wait_until_loaded(rows=10)

    assert "waiting" not in daemon.log
    assert reader.execute("SELECT count(*) FROM metricOutput").fetchone() == count == (0,)
    reader.close()


def test_a_file_that_becomes_read_only_is_reported_and_loading_resumes_once_it_is_writable(
    spool: SpoolSite, tmp_path: Path
) -> None:
    file = tmp_path / "sam.db"
    with spool.daemon(*AS_ANYBODY) as daemon:
        with written_by_another(file):
            spool.fill(results(10))
            daemon.wait_for("database is locked")
            # An open file stays writable; the mode takes effect when it is opened again.
            file.chmod(0o444)
        daemon.wait_for(str(file), "readonly database", WAITING)
        for file in tmp_path.glob("sam.db*"):  # SQLite copies the mode to its other files
            file.chmod(0o644)

        spool.wait_until_loaded(rows=10)


def test_a_file_that_is_read_only_from_the_start_is_refused(
    spool: SpoolSite, tmp_path: Path
) -> None:
    (tmp_path / "sam.db").chmod(0o444)
    spool.fill(results(1))

    with spool.daemon(*AS_ANYBODY) as daemon:
        code = daemon.process.wait(WAIT_S)

    assert code == 77
    assert f"{tmp_path}/sam.db: no permission to write" in daemon.log
    assert len(spool.pending()) == 1


def test_a_commit_that_is_not_on_disk_is_not_acked(spool: SpoolSite, tmp_path: Path) -> None:
    spool.fill(results(10))
    other = sqlite3.connect(tmp_path / "sam.db")
    other.execute("PRAGMA user_version = 1")  # a new log is synced whatever the setting

    try:
        drain = spool.site.command("run", "--drain", "--timeout", "1")
        drained = strace(drain, "fsync,fdatasync", "error=EIO", "1+")
    except ServiceMissing as reason:
        missing(reason.name, reason.how_to_get_it)
    other.close()

    assert drained.returncode == 69, drained.stderr
    assert len(spool.pending()) == 10


def test_a_full_disk_is_reported_and_loading_resumes_once_there_is_space(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", "size=4m") as disk:
        spool = spool_site(tmp_path, f"sqlite:///{disk}/sam.db")
        with spool.daemon() as daemon:
            spool.fill(results(10, "before"))
            spool.wait_until_loaded(rows=10)
            fill_up(disk / "ballast")
            spool.fill(results(500, "after"))
            daemon.wait_for("disk is full", WAITING)
            (disk / "ballast").unlink()

            spool.wait_until_loaded(rows=510)
        assert spool.site.scalar("PRAGMA integrity_check") == "ok"
