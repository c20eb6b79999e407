"""Archives in a directory and on an S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.sql.archive.config import ArchiveConfig
from sam_pipeline.sql.archive.store import LocalStore, Store
from tests.services.s3 import KEYS, REGION, S3Server, running_s3
from tests.support.database.archived import directory, fill
from tests.support.database.sam_db import SamDb, sam_db_on


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    """An empty archive in a directory."""
    return LocalStore(directory(tmp_path))


@pytest.fixture(params=["directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty archive of either kind."""
    if request.param == "directory":
        return LocalStore(directory(tmp_path))
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    server: S3Server = request.getfixturevalue("s3")
    store = ArchiveConfig(url=server.new_bucket(), endpoint=server.endpoint, region=REGION).open()
    assert store is not None
    return store


@pytest.fixture
def sam_db(engine: Engine, local: LocalStore, tmp_path: Path) -> SamDb:
    """Commands on a database with three days, and on the local archive."""
    fill(engine)
    return sam_db_on(engine, tmp_path, SAM_ARCHIVE_URL=local.url)
