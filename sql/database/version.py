"""Schema versions: that of the database, the one that this program needs, and upgrades."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, TextIO

from sqlalchemy import Connection, Engine, event, inspect, text

from sam_pipeline.sql.database import roles
from sam_pipeline.sql.database.engine import name_of, reading, writing
from sam_pipeline.sql.database.script import HERE, run_script
from sam_pipeline.sql.errors import DATABASE_ERRORS, Kind, SchemaMismatch, kind_of

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = HERE / "migrations"
VERSIONS = MIGRATIONS / "versions"


def wanted_version() -> str:
    """The version that this program needs."""
    return versions()[-1]


def current_version(engine: Engine) -> str | None:
    """The version of the database; None if it has no schema."""
    with reading(engine) as connection:
        return _version(connection)


def require_current(engine: Engine) -> None:
    """Make sure that the database has the version that this program needs.

    Raises:
        SchemaMismatch: it has no schema, or one of another version.
        DatabaseAway: it is unavailable.
    """
    version = current_version(engine)
    if version != wanted_version():
        raise _mismatch(engine, version)


def require_current_always(engine: Engine) -> None:
    """Make every new connection of the engine raise SchemaMismatch like `require_current`.

    So a program that lost its connection does not go on with a database upgraded meanwhile.
    """

    def check(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        try:
            cursor.execute("SELECT version_num FROM alembic_version")
            version = (cursor.fetchone() or [None])[0]
        except DATABASE_ERRORS as error:
            if kind_of(error) is Kind.RETRY:
                raise
            version = None
        connection.rollback()
        if version != wanted_version():
            raise _mismatch(engine, version)

    event.listen(engine, "connect", check)


def upgrade(engine: Engine, version: str = "head") -> list[str]:
    """Upgrade the database to a version in one transaction, and return the versions applied.

    On PostgreSQL it also creates the roles and, at the newest version, grants them their rights, as
    far as the user is allowed to.

    Raises:
        SchemaMismatch: the database is newer than this program.
        ConfigError: the current schema of the user is not ours.
        DatabaseRefused: the user may not act as the owner of the schema.
    """
    from alembic import command  # slow to import, and only upgrades need it

    with writing(engine) as connection:
        if connection.dialect.name == "postgresql":
            roles.lock_schema(connection)
            run_script(connection, roles.access_file("10_roles.sql"))
            roles.become_owner(connection)
            roles.warn_of_missing_roles(connection)
        before, steps = _version(connection), versions()
        if before is not None and before not in steps:
            raise _mismatch(engine, before)
        command.upgrade(_alembic(connection=connection), version)
        after = _version(connection)
        if connection.dialect.name == "postgresql" and after == steps[-1]:
            roles.grant(connection)
        return [step for step in steps if (before or "") < step <= (after or "")]


def upgrade_script(dialect: str, start: str | None = None) -> str:
    """The SQL of an upgrade from version `start`, or of the whole schema."""
    from alembic import command

    steps = io.StringIO()
    config = _alembic(output_buffer=steps, dialect=dialect)
    command.upgrade(config, f"{start or 'base'}:head", sql=True)
    if dialect == "sqlite":
        return f"BEGIN IMMEDIATE;\n\n{steps.getvalue()}COMMIT;\n"
    return access_script(steps.getvalue())


def access_script(*steps: str) -> str:
    """The SQL for roles and grants, with the `steps` of an upgrade between them."""
    settings = f"SET LOCAL search_path = {roles.SCHEMA};\n{roles.SCHEMA_LOCK};"
    read = roles.access_file
    scripts = [read("10_roles.sql"), read("20_owner.sql"), *steps, read("30_grants.sql")]
    return "\n".join(["BEGIN;", settings, "", *scripts, "COMMIT;", ""])


def versions() -> list[str]:
    """All versions that this program knows, oldest first."""
    return sorted(path.stem.removeprefix("v") for path in VERSIONS.glob("v[0-9]*.py"))


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return version


def _mismatch(engine: Engine, version: str | None) -> SchemaMismatch:
    wanted = wanted_version()
    if version is None:
        reason = f"has no schema (this program needs version {wanted}): run `sam-db upgrade`"
    elif version in versions():
        reason = f"schema version {version}, this program needs {wanted}: run `sam-db upgrade`"
    else:
        newer = f"schema version {version} is newer than this program"
        reason = f"{newer}, which needs {wanted}: update the program"
    return SchemaMismatch(f"{name_of(engine)}: {reason}", version, wanted)


def _alembic(output_buffer: TextIO | None = None, **attributes: object) -> Config:
    """Alembic's configuration, without an alembic.ini."""
    from alembic.config import Config

    config = Config(output_buffer=output_buffer, attributes=attributes)
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("version_locations", str(VERSIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
