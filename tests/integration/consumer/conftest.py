"""Sites and databases for tests of the consumer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import DIALECTS
from tests.support.consumer.site import Site, sqlite_site


@pytest.fixture
def small_site(tmp_path: Path) -> Site:
    """A site on SQLite that reads one spool; `small_site.fill(message)`."""
    return sqlite_site(tmp_path)


@pytest.fixture(params=DIALECTS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database of the test's own, of each dialect."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'sam.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url
