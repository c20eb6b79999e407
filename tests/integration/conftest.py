"""A database of each dialect: what takes the fixture `engine` runs once on either."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sql.catalogue import Catalogue
from sql.engine import make_engine
from sql.version import upgrade

DIALECTS = ("sqlite", "postgresql")


@pytest.fixture(params=DIALECTS)
def empty_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """A new database without a schema."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'sam.db'}"
    else:
        url = request.getfixturevalue("postgres_url")
    engine = make_engine(url, create=True)
    yield engine
    engine.dispose()


@pytest.fixture
def engine(empty_engine: Engine) -> Engine:
    """A new database with the present schema."""
    upgrade(empty_engine)
    return empty_engine


@pytest.fixture
def catalogue(engine: Engine) -> Catalogue:
    return Catalogue(engine)
