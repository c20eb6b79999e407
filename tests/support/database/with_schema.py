"""Databases with the current schema: copies of one that an upgrade made, which takes longer."""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import psycopg2
from sqlalchemy import URL, Engine, make_url, text

from sam_pipeline.sql.database import roles
from sam_pipeline.sql.database.engine import make_engine, writing
from sam_pipeline.sql.database.script import HERE, run_script
from sam_pipeline.sql.database.version import upgrade

NEW_IDENTITY = text("UPDATE database_identity SET database_id = CAST(gen_random_uuid() AS text)")


def with_schema(url: str) -> Engine:
    """An engine for the database, which need not exist and has the current schema from now on."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        file = Path(str(parsed.database))
        if not file.exists():
            file.write_bytes(_empty_sqlite_file())
            return make_engine(url)
    elif _is_empty(parsed):
        _replace_by_copy(parsed)
        engine = make_engine(url)
        with writing(engine) as connection:  # a copy lacks grants on the database itself
            run_script(connection, roles.access_file("10_roles.sql"))
            connection.execute(NEW_IDENTITY)
        return engine
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


def _is_empty(url: URL) -> bool:
    try:
        connected = _connect(url)
    except psycopg2.OperationalError:  # it does not exist
        return True
    with closing(connected) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace")
        return cursor.fetchone() is None


def _replace_by_copy(url: URL) -> None:
    """The template has the name of its contents: a server may outlive a change of the program."""
    template = f"sam_schema_{_program()}"
    with closing(_connect(url.set(database="postgres"))) as connection:
        # Copies files instead of logging each page: half the time.
        strategy = " STRATEGY file_copy" if connection.server_version >= 150_000 else ""
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(4711)")
            cursor.execute("SELECT FROM pg_database WHERE datname = %s", [template])
            if cursor.fetchone() is None:
                cursor.execute(f"DROP DATABASE IF EXISTS {template}_new")
                cursor.execute(f"CREATE DATABASE {template}_new{strategy}")
                engine = make_engine(
                    url.set(database=f"{template}_new").render_as_string(hide_password=False)
                )
                upgrade(engine)
                engine.dispose()
                cursor.execute(f"ALTER DATABASE {template}_new RENAME TO {template}")
            cursor.execute("SELECT pg_advisory_unlock(4711)")
            cursor.execute(f"DROP DATABASE IF EXISTS {url.database}")
            cursor.execute(f"CREATE DATABASE {url.database} TEMPLATE {template}{strategy}")


def _connect(url: URL) -> Any:
    connection = psycopg2.connect(
        host=url.host,
        port=url.port,
        user=url.username,
        password=url.password,
        dbname=url.database,
    )
    connection.autocommit = True
    return connection


@cache
def _program() -> str:
    files = [path for room in ("postgresql", "database") for path in (HERE / room).rglob("*")]
    digest = hashlib.sha256()
    for file in sorted(files):
        if file.suffix in (".sql", ".py"):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
