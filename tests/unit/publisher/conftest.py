"""Surroundings of its own for each test: no configuration, no secrets, no proxies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sam_pipeline.publisher.spool import bounded
from sam_pipeline.schema.spool.queue import DirectoryQueue

FOREIGN = ("SAM_", "XDG_", "BEARER_TOKEN", "CREDENTIALS_")


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith(FOREIGN) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name in ("HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setattr(bounded, "ELSEWHERE", (str(tmp_path),))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def spool(tmp_path: Path) -> DirectoryQueue:
    """The spool of `config_for`."""
    return DirectoryQueue(tmp_path / "spool")
