"""An archive on a full disk, and in a directory that is not writable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.program.command import IO_ERROR, NO_PERMISSION, OK
from sam_pipeline.sql.archive.manifest import newest
from sam_pipeline.sql.archive.store import LocalStore
from tests.support.database.archived import DAY, directory, fill, is_intact, newest_day
from tests.support.database.sam_db import sam_db_on
from tests.support.database.with_schema import with_schema
from tests.support.small_disk import small_disk

WITHOUT_ROOTS_RIGHTS = (
    ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
)
"""Modes of files apply to root, too."""


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    engine = with_schema(f"sqlite:///{tmp_path / 'sam.db'}")
    fill(engine)
    return engine


def test_a_full_disk_is_reported_with_the_path_and_nothing_is_half_done(
    engine: Engine, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "small", "size=64k") as disk:
        sam_db, store = sam_db_on(engine, tmp_path, SAM_ARCHIVE_URL=str(disk)), LocalStore(disk)
        filler = disk / "filler"
        codes = []
        for free_kb in (0, 8, 16, 24, 32, 40):
            filler.write_bytes(b"")
            size = (64 - free_kb) * 1024
            try:
                filler.write_bytes(b"x" * size)
            except OSError:
                filler.write_bytes(b"x" * (size - 8192))
            done = sam_db("archive", "write", "--day", str(DAY))
            codes.append(done.code)
            assert is_intact(store)
            if done.code:
                assert newest(store, DAY) is None
                assert str(disk) in done.err

        assert IO_ERROR in codes
        filler.unlink()
        assert sam_db("archive", "write", "--day", str(DAY)).code == OK
        assert newest_day(store).rows == 12
        assert is_intact(store)


def test_a_directory_that_is_not_writable_is_reported(engine: Engine, tmp_path: Path) -> None:
    root = directory(tmp_path)
    root.chmod(0o500)
    url = sam_db_on(engine, tmp_path).url

    command = (sys.executable, "-m", "sam_pipeline.sql", "archive", "write", "--day", str(DAY))
    done = subprocess.run(
        [*WITHOUT_ROOTS_RIGHTS, *command],
        env={**os.environ, "SAM_DATABASE_URL": url, "SAM_ARCHIVE_URL": str(root)},
        capture_output=True,
        text=True,
    )

    assert done.returncode == NO_PERMISSION, done.stderr
    assert str(root) in done.stderr
