"""`sam-db` on an SQLite file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.database.sam_db import SamDb


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The configured database file, which does not exist yet."""
    return tmp_path / "sam.db"


@pytest.fixture
def database(file: Path, empty_database: Path) -> Path:
    """The configured database file, with a schema."""
    shutil.copy(empty_database, file)
    return file


@pytest.fixture
def sam_db(file: Path) -> SamDb:
    """Commands in the directory of that file."""
    return SamDb(f"sqlite:///{file}", file.parent)
