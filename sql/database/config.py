"""The section [database] of sam.toml, which every program that needs the database reads."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from sqlalchemy import make_url

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.program import config
from sam_pipeline.sql.database.engine import parse_url

VARIABLE = "SAM_DATABASE_URL"

T = TypeVar("T")


def _problem(url: str) -> str | None:
    try:
        parse_url(url)
    except ConfigError as error:
        return str(error)
    return None


@dataclass(frozen=True)
class DatabaseConfig:
    """`url` may hold a password: it is not shown."""

    url: str = field(repr=False, metadata={"check": _problem})


@dataclass(frozen=True)
class _Found:
    """The same, where it may be that nothing is said."""

    url: str | None = field(default=None, repr=False, metadata={"check": _problem})


def load_database(args: argparse.Namespace) -> DatabaseConfig:
    """Where the database is.

    Raises:
        ConfigError: no or no good URL, in the file or the environment.
    """
    url = config.load(DatabaseConfig, "database", args.config, os.environ).url
    return DatabaseConfig(_url(args, url))


def find_database(args: argparse.Namespace) -> DatabaseConfig | None:
    """The same; None where no URL is configured.

    Raises:
        ConfigError: the URL is no good.
    """
    url = config.load(_Found, "database", args.config, os.environ).url
    return DatabaseConfig(_url(args, url)) if url else None


def _url(args: argparse.Namespace, url: str) -> str:
    file = config.find_file(args.config, os.environ)
    return url if file is None or os.environ.get(VARIABLE) else _beside(file, url)


def state_directory() -> Path:
    """Where an import that was stopped remembers how far it came."""
    return config.state_dir(os.environ)


def _beside(file: Path, url: str) -> str:
    """A relative path of an SQLite file is relative to the configuration file."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return url
    path = file.parent / str(parsed.database)
    return parsed.set(database=str(path)).render_as_string(hide_password=False)
