"""The schema's version: which one the database has, which one this program wants, and upgrades."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from sql.engine import name_of, reading, writing
from sql.errors import SchemaMismatch
from sql.script import HERE


def wanted_version() -> str:
    """The version this program works with."""
    return str(ScriptDirectory.from_config(_alembic()).get_current_head())


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


def upgrade(engine: Engine) -> list[str]:
    """Bring the database to the wanted version in one transaction; the versions applied.

    Raises:
        SchemaMismatch: the database is newer than this program.
    """
    with writing(engine) as connection:
        if connection.dialect.name == "postgresql":  # two upgrades at once: the second waits
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('sam', 0))"))
        found, steps = _version(connection), _steps()
        if found is not None and found not in steps:
            wanted = steps[-1]
            raise SchemaMismatch(f"{name_of(engine)}: {_mismatch(found, wanted)}", found, wanted)
        command.upgrade(_alembic(connection), "head")
        return steps[steps.index(found) + 1 :] if found else steps


def _version(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _steps() -> list[str]:
    scripts = ScriptDirectory.from_config(_alembic())
    return [script.revision for script in scripts.walk_revisions()][::-1]


def _mismatch(found: str | None, wanted: str) -> str:
    if found is None:
        return f"no schema there (this program wants version {wanted}): run `sam-db upgrade`"
    if found in _steps():
        return f"schema version {found}, this program wants {wanted}: run `sam-db upgrade`"
    return f"schema version {found} is newer than this program, which wants {wanted}: update it"


def _alembic(connection: Connection | None = None) -> Config:
    """Alembic, told in code what an alembic.ini would say."""
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(HERE).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
