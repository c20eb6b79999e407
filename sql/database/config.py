"""The section [database] of sam.toml, and the database that it configures."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from sqlalchemy import Engine, make_url

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker import is_loopback
from sam_pipeline.schema.settings.key import Settings, config_key
from sam_pipeline.schema.settings.section import examine, load
from sam_pipeline.sql.database.engine import ROLE, make_engine, parse_url
from sam_pipeline.sql.database.version import require_compatible

MAY_BE_PLAIN = ("disable", "allow", "prefer")
"""Values of libpq's `sslmode` that do not require TLS; the last one is its default."""


def _problem(url: str) -> str | None:
    try:
        parse_url(url)
    except ConfigError as error:
        return str(error)
    return None


def _absolute(url: str, folder: Path) -> str:
    """An SQLite file is relative to the file that names it."""
    if _problem(url) or (parsed := make_url(url)).get_backend_name() != "sqlite":
        return url
    path = str(folder / str(parsed.database))
    return parsed.set(database=path).render_as_string(hide_password=False)


class DatabaseConfig(Settings):
    """The section `[database]`; some commands need none."""

    SECTION = "database"

    url: str | None = config_key(
        "`postgresql+psycopg2://USER@HOST/NAME?sslmode=verify-full`, with any parameter of libpq,"
        " or `sqlite:////PATH`",
        _problem,
        None,
        read=_absolute,
    )

    def __repr__(self) -> str:
        """Without the URL, which may contain a password."""
        return f"{type(self).__name__}()"


def database_url(args: argparse.Namespace) -> str:
    """The URL of the database; raises ConfigError if it is missing or invalid."""
    findings = examine(DatabaseConfig, args.config)
    if not {"url"} & (findings.values.keys() | findings.bad):
        findings.add_missing("url")
    return str(findings.config().url)


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


def has_database(args: argparse.Namespace) -> bool:
    """Whether a URL is configured; raises ConfigError if it is invalid."""
    return bool(load(DatabaseConfig, args.config).url)


def open_if_configured(args: argparse.Namespace) -> Engine | None:
    """Like `open_database`, but None if no URL is configured."""
    return open_database(args) if has_database(args) else None


def note_on_plain_text(url: str) -> str | None:
    """A note if PostgreSQL on another machine may be reached without TLS."""
    parsed = make_url(url)
    query = parsed.normalized_query
    mode = query.get("sslmode", [os.environ.get("PGSSLMODE") or "prefer"])[-1]
    hosts = [parsed.host] if parsed.host else query.get("host", [os.environ.get("PGHOST", "")])
    names = [name for host in hosts for name in host.split(",")]
    names = [name.partition(":")[0] if name.count(":") == 1 else name for name in names]
    others = [name for name in names if name and name[0] not in "/@" and not is_loopback(name)]
    if parsed.get_backend_name() == "sqlite" or not others or mode not in MAY_BE_PLAIN:
        return None
    problem = f"sslmode is {mode}, so passwords and data may be sent in plain text"
    return f"[database] url: {problem}: append ?sslmode=verify-full"
