"""Unit tests start no processes; tests that do are integration or acceptance tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.database.version import upgrade


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file with the schema, to copy: applying the schema takes much longer."""
    file = tmp_path_factory.mktemp("empty") / "sam.db"
    engine = make_engine(f"sqlite:///{file}", create=True)
    upgrade(engine)
    engine.dispose()
    return file


@pytest.fixture(autouse=True)
def no_processes() -> Iterator[None]:
    def refuse(*arguments: object, **settings: object) -> NoReturn:
        pytest.fail(
            "a unit test may not start a process: move it to tests/integration or acceptance"
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", refuse)
        patch.setattr(os, "fork", refuse)
        yield
