"""The schema's version: which one the database has, which one this program wants, and upgrades."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, TextIO

from sqlalchemy import Connection, Engine, inspect, text

from sam_pipeline.sql.database.engine import name_of, reading, writing
from sam_pipeline.sql.database.roles import (
    SCHEMA,
    SCHEMA_LOCK,
    become_owner,
    grant,
    grants_script,
    lock_schema,
    make_roles,
    owner_script,
    roles_script,
    warn_of_missing_roles,
)
from sam_pipeline.sql.database.script import HERE
from sam_pipeline.sql.errors import SchemaMismatch

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = HERE / "migrations"
VERSIONS = MIGRATIONS / "versions"


def wanted_version() -> str:
    """The version this program works with."""
    return versions()[-1]


def current_version(engine: Engine) -> str | None:
    """The version of the database; None where no schema was applied."""
    with reading(engine) as connection:
        return _version(connection)


def require_current(engine: Engine) -> None:
    """Nothing, if the database has the version this program wants.

    Raises:
        SchemaMismatch: it has none, an older or a newer one.
        DatabaseAway: it can't be asked.
    """
    found, wanted = current_version(engine), wanted_version()
    if found != wanted:
        raise SchemaMismatch(f"{name_of(engine)}: {_mismatch(found, wanted)}", found, wanted)


def upgrade(engine: Engine, version: str = "head") -> list[str]:
    """Bring the database to a version, in one transaction; the versions applied.

    On PostgreSQL also the roles and, with the wanted version, their rights, as far as the user may.

    Raises:
        SchemaMismatch: the database is newer than this program.
        ConfigError: the user works in another schema than ours.
        DatabaseRefused: the schema belongs to somebody else.
    """
    from alembic import command  # slow to import, and only upgrades need it

    with writing(engine) as connection:
        if connection.dialect.name == "postgresql":
            lock_schema(connection)
            make_roles(connection)
            become_owner(connection)
            warn_of_missing_roles(connection)
        found, steps = _version(connection), versions()
        if found is not None and found not in steps:
            wanted = steps[-1]
            raise SchemaMismatch(f"{name_of(engine)}: {_mismatch(found, wanted)}", found, wanted)
        command.upgrade(_alembic(connection=connection), version)
        now = _version(connection)
        if connection.dialect.name == "postgresql" and now == steps[-1]:
            grant(connection)
        return [step for step in steps if (found or "") < step <= (now or "")]


def upgrade_script(dialect: str, start: str | None = None) -> str:
    """What `upgrade` does, on paper: the steps after version `start`, or all."""
    from alembic import command

    steps = io.StringIO()
    config = _alembic(output_buffer=steps, dialect=dialect)
    command.upgrade(config, f"{start or 'base'}:head", sql=True)
    if dialect == "sqlite":
        return f"BEGIN IMMEDIATE;\n\n{steps.getvalue()}COMMIT;\n"
    return _in_one_transaction(roles_script(), owner_script(), steps.getvalue(), grants_script())


def access_script() -> str:
    """Roles and grants alone, for an administrator."""
    return _in_one_transaction(roles_script(), owner_script(), grants_script())


def versions() -> list[str]:
    """All versions this program knows, the oldest first."""
    return sorted(path.stem.removeprefix("v") for path in VERSIONS.glob("v[0-9]*.py"))


def _in_one_transaction(*scripts: str) -> str:
    settings = f"SET LOCAL search_path = {SCHEMA};\n{SCHEMA_LOCK};"
    return "\n".join(["BEGIN;", settings, "", *scripts, "COMMIT;", ""])


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return found


def _mismatch(found: str | None, wanted: str) -> str:
    if found is None:
        return f"no schema there (this program wants version {wanted}): run `sam-db upgrade`"
    if found in versions():
        return f"schema version {found}, this program wants {wanted}: run `sam-db upgrade`"
    return f"schema version {found} is newer than this program, which wants {wanted}: update it"


def _alembic(output_buffer: TextIO | None = None, **attributes: object) -> Config:
    """Alembic, told in code what an alembic.ini would say."""
    from alembic.config import Config

    config = Config(output_buffer=output_buffer, attributes=attributes)
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("version_locations", str(VERSIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
