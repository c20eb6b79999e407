"""A workplace with either database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Workplace
from tests.support.database.with_schema import with_schema


@pytest.fixture(params=["sqlite", "postgresql"])
def workplace(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    url = f"sqlite:///{tmp_path / 'sam.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
    with_schema(url).dispose()
    return Workplace(tmp_path, f"spool://{tmp_path}/spool", url).write_configuration()
