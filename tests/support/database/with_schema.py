"""Databases with the current schema."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from sqlalchemy import Engine, make_url

from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.database.version import upgrade


def with_schema(url: str) -> Engine:
    """An engine for the database, which has the current schema from now on."""
    parsed = make_url(url)
    file = Path(str(parsed.database))
    if parsed.get_backend_name() == "sqlite" and not file.exists():
        file.write_bytes(_empty_sqlite_file())  # a quarter of the time of an upgrade
        return make_engine(url)
    engine = make_engine(url)
    upgrade(engine)
    return engine


@cache
def _empty_sqlite_file() -> bytes:
    with tempfile.TemporaryDirectory(prefix="sam-schema-") as name:
        file = Path(name) / "sam.db"
        engine = make_engine(f"sqlite:///{file}", create=True)
        upgrade(engine)
        engine.dispose()
        return file.read_bytes()
