"""Schema versions: that of the database, the one that this program wants, and upgrades.

A program works with the schema that it wants, and with its neighbour if the newer of the two is
additive: then programs of the older version ignore what it adds, and its own programs do without.
The file of a version says `additive = True`; an upgrade records it in the table `compatibility`.
"""

from __future__ import annotations

import io
import logging
import runpy
from functools import cache
from pathlib import Path
from typing import NamedTuple, TextIO

from sqlalchemy import Connection, Engine, inspect

from sam_pipeline.sql.database import roles
from sam_pipeline.sql.database.engine import (
    FOLLOWED,
    FollowedSchema,
    SchemaRow,
    name_of,
    reading,
    schema_row,
    writing,
)
from sam_pipeline.sql.database.script import run_script
from sam_pipeline.sql.errors import SchemaMismatch

MIGRATIONS = Path(__file__).with_name("migrations")
VERSIONS = MIGRATIONS / "versions"

# Loaders begin each transaction by reading the version, so none of them spans an upgrade.
_LOCK_VERSION = "LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE"

logger = logging.getLogger(__name__)


class Schema(NamedTuple):
    """The state of a database: a version, and the oldest one whose programs work with it."""

    version: str
    oldest_program: str | None

    @property
    def is_wanted(self) -> bool:
        """Whether it has the version of this program."""
        return self.version == wanted_version()

    @property
    def suits(self) -> bool:
        """Whether this program works with it."""
        wanted = wanted_version()
        if self.version < wanted:
            is_additive = runpy.run_path(str(VERSIONS / f"v{wanted}.py")).get("additive")
            return versions()[-2:] == [self.version, wanted] and is_additive is True
        return wanted in (self.version, self.oldest_program)

    def __str__(self) -> str:
        """Its version, and if that is not the wanted one, what this means for the program."""
        wanted = wanted_version()
        if self.is_wanted:
            return f"version {self.version}"
        text = f"schema {self.version}, this program wants {wanted}: compatible (additive)"
        if self.version < wanted:
            return f"{text}; run `sam-db upgrade` when all programs are updated"
        return text


def wanted_version() -> str:
    """The version that this program wants."""
    return versions()[-1]


def current_schema(engine: Engine) -> Schema | None:
    """The schema of the database, if it has one."""
    with reading(engine) as connection:
        return _schema(connection)


def require_compatible(engine: Engine) -> Schema:
    """Make sure that this program works with the schema, now and as `follow_schema` does.

    Raises:
        SchemaMismatch: the database has no schema, or a version that this program does not support.
        DatabaseAway: it is unavailable.
    """
    followed = follow_schema(engine)
    with reading(engine):
        assert followed.row  # otherwise the transaction does not begin
        return Schema(*followed.row)


def follow_schema(engine: Engine) -> FollowedSchema:
    """Let every transaction of the engine look at the schema when it begins.

    After an upgrade to a version that this program supports, it begins in a new session, since
    temporary tables are those of the old version. Otherwise it raises SchemaMismatch.
    """

    def accept(row: SchemaRow | None) -> None:
        if row is None or not Schema(*row).suits:
            raise _mismatch(engine, row and row[0])
        if followed.row:
            text = "%s: the schema was upgraded, continuing: %s"
            logger.info(text, name_of(engine), Schema(*row))

    followed: FollowedSchema = engine.get_execution_options().get(FOLLOWED, FollowedSchema(accept))
    engine.update_execution_options(**{FOLLOWED: followed})
    return followed


def upgrade(engine: Engine, version: str = "head") -> list[str]:
    """Upgrade the database to a version in one transaction, and return the versions applied.

    On PostgreSQL it also creates the roles and, at the newest version, grants them their rights, as
    far as the user is allowed to.

    A newer database with which this program works is left as it is.

    Raises:
        SchemaMismatch: the database is newer, and this program does not support it.
        ConfigError: the current schema of the user is not ours.
        DatabaseRefused: the user may not act as the owner of the schema.
    """
    with writing(engine) as connection:
        is_postgresql = connection.dialect.name == "postgresql"
        if is_postgresql:
            roles.lock_schema(connection)
        is_new = not inspect(connection).has_table("alembic_version")
        schema, steps = None if is_new else _schema(connection), versions()
        before = schema.version if schema else None
        if schema and before not in steps:
            if schema.suits:
                return []
            raise _mismatch(engine, before)
        if is_postgresql:
            run_script(connection, roles.access_file("10_roles.sql"))
            roles.become_owner(connection)
            roles.warn_of_missing_roles(connection)
            if before not in (None, steps[-1]):
                run_script(connection, _LOCK_VERSION)
        _run_migrations(version, connection=connection)
        schema = _schema(connection)
        after = schema.version if schema else ""
        if is_postgresql and after == steps[-1]:
            roles.grant(connection)
        return [step for step in steps if (before or "") < step <= after]


def upgrade_script(dialect: str, start: str | None = None) -> str:
    """The SQL of an upgrade from version `start`, or of the whole schema."""
    steps = io.StringIO()
    _run_migrations(f"{start or 'base'}:head", steps, dialect=dialect)
    if dialect == "sqlite":
        return f"BEGIN IMMEDIATE;\n\n{steps.getvalue()}COMMIT;\n"
    return access_script(*[f"{_LOCK_VERSION};\n"] if start else [], steps.getvalue())


def access_script(*steps: str) -> str:
    """The SQL for roles and grants, with the `steps` of an upgrade between them."""
    settings = f"SET LOCAL search_path = {roles.SCHEMA};\n{roles.SCHEMA_LOCK};"
    read = roles.access_file
    scripts = [read("10_roles.sql"), read("20_owner.sql"), *steps, read("30_grants.sql")]
    return "\n".join(["BEGIN;", settings, "", *scripts, "COMMIT;", ""])


def versions() -> list[str]:
    """All versions that this program knows, oldest first."""
    return _versions_in(VERSIONS)


@cache  # a running program stays what it is while another version is installed in its place
def _versions_in(folder: Path) -> list[str]:
    return sorted(path.stem.removeprefix("v") for path in folder.glob("v[0-9]*.py"))


def _schema(connection: Connection) -> Schema | None:
    row = schema_row(connection)
    return Schema(*row) if row else None


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


def _run_migrations(versions: str, script: TextIO | None = None, **attributes: object) -> None:
    """Run the steps up to a version, or write the SQL of a range of them to `script`."""
    from alembic import command  # slow to import, and only upgrades need it
    from alembic.config import Config

    config = Config(output_buffer=script, attributes=attributes)  # without an alembic.ini
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("version_locations", str(VERSIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    command.upgrade(config, versions, sql=script is not None)
