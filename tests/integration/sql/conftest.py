"""Databases of random worlds, and a PostgreSQL server without what `check` objects to."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.oracle.databases import Databases
from tests.services import needed
from tests.services.postgres import PostgresServer, drop_database, new_url, running_postgres

MEMORY = Path("/dev/shm")
SETTINGS = {"timezone": "Asia/Kolkata", "full_page_writes": "off", "max_wal_size": "64MB"}


@contextmanager
def running_durable_postgres() -> Iterator[PostgresServer]:
    """It syncs, unlike the shared server: in memory, where that takes no time, if there is room."""
    with pytest.MonkeyPatch.context() as patch:
        if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 2e9:
            patch.setattr(tempfile, "tempdir", str(MEMORY))
        starting = needed(running_postgres(SETTINGS))
        server = starting.__enter__()
    try:
        yield server
    finally:
        starting.__exit__(None, None, None)


@pytest.fixture(scope="session")
def durable_postgres() -> Iterator[PostgresServer]:
    with running_durable_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def databases(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Databases]:
    url = new_url(postgres)
    yield Databases(tmp_path_factory.mktemp("worlds"), url)
    drop_database(postgres, url)
