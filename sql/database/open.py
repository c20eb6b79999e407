"""The configured database, opened for a command."""

from __future__ import annotations

import argparse

from sqlalchemy import Engine

from sam_pipeline.sql.database.config import has_database, load_database
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.database.version import require_current


def open_database(args: argparse.Namespace) -> Engine:
    """The database of `--config` or the environment, of this program's version.

    Raises:
        ConfigError: no URL, or a bad one.
        DatabaseMissing: no such file.
        SchemaMismatch: it has no schema, an older or a newer one.
        DatabaseAway: it can't be reached.
    """
    engine = make_engine(load_database(args).url)
    require_current(engine)
    return engine


def open_if_configured(args: argparse.Namespace) -> Engine | None:
    """Like `open_database`, but None where no URL is configured.

    Raises:
        ConfigError, DatabaseMissing, SchemaMismatch, DatabaseAway
    """
    return open_database(args) if has_database(args) else None
