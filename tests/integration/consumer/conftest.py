"""Sites and destinations for tests of the consumer."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.support.consumer.site import Site, sqlite_site


@pytest.fixture
def destination() -> str:
    return f"/topic/grid.probe.{uuid.uuid4().hex}"


@pytest.fixture
def small_site(tmp_path: Path) -> Site:
    """A site on SQLite that reads one spool; `small_site.fill(message)`."""
    return sqlite_site(tmp_path)
