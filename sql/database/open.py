"""Opens the configured database for a command."""

from __future__ import annotations

import argparse

from sqlalchemy import Engine

from sam_pipeline.sql.database.config import database_url, has_database
from sam_pipeline.sql.database.engine import ROLE, make_engine
from sam_pipeline.sql.database.version import require_compatible


def open_database(args: argparse.Namespace, role: str = "", read_only: bool = False) -> Engine:
    """The database of `--config` or the environment, with whose schema this program works.

    Args:
        role: the role on PostgreSQL that the command needs, for the error of a login without it.
        read_only: nothing can be written; an SQLite file need not be writable.

    Raises:
        ConfigError: the URL is missing or invalid.
        DatabaseMissing: the database does not exist.
        SchemaMismatch: it has no schema, or one that this program does not support.
        DatabaseAway: it is unavailable.
    """
    engine = make_engine(database_url(args), read_only=read_only)
    engine = engine.execution_options(**{ROLE: role})
    require_compatible(engine)
    return engine


def open_if_configured(args: argparse.Namespace) -> Engine | None:
    """Like `open_database`, but None if no URL is configured."""
    return open_database(args) if has_database(args) else None
