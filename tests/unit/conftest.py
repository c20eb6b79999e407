"""Unit tests start no processes; tests that do are integration or acceptance tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import NoReturn

import pytest


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
