"""Unit tests start no processes; tests that do are integration or acceptance tests."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.database.with_schema import with_schema


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file with the schema, to copy: applying the schema takes much longer."""
    file = tmp_path_factory.mktemp("empty") / "sam.db"
    with_schema(f"sqlite:///{file}").dispose()
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


@pytest.fixture(autouse=True)
def default_action_of_sigterm() -> Iterator[None]:
    """Whatever other tests of the same process left, such as the handler of a Spark session."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)
