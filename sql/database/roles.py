"""The roles of PostgreSQL, the scripts that create them, and their rights."""

from __future__ import annotations

import logging

from sqlalchemy import Connection, text

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.sql.database.engine import name_of
from sam_pipeline.sql.database.script import HERE, run_script

OWNER = "sam_owner"
LOADER = "sam_loader"
TOPOLOGY = "sam_topology"
REPORTER = "sam_reporter"
ARCHIVER = "sam_archiver"
READER = "sam_reader"
ROLES = (OWNER, LOADER, TOPOLOGY, REPORTER, ARCHIVER, READER)
SCHEMA = "public"
"""Functions that run with the rights of the owner only look for tables in this schema."""

ROLES_COMMAND = "sam-db sql --roles | psql"
"""For an administrator, if the user may not create roles."""

SCHEMA_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('sam', 0))"
"""Makes concurrent upgrades and repairs wait for each other."""

logger = logging.getLogger(__name__)

_EXISTING = text("SELECT rolname FROM pg_roles WHERE rolname = ANY (:roles)")


def access_file(name: str) -> str:
    """The SQL of a file in sql/postgresql/access."""
    return (HERE / "postgresql" / "access" / name).read_text(encoding="utf-8")


def lock_schema(connection: Connection) -> None:
    """Keep others from upgrading or repairing the schema until the transaction ends.

    Raises:
        ConfigError: the current schema of the user is not ours.
    """
    connection.execute(text(SCHEMA_LOCK))
    foreign = foreign_schema(connection)
    if foreign is not None:
        where = name_of(connection.engine)
        raise ConfigError(
            [f"{where}: the user's schema is {foreign}, not {SCHEMA}: set its search_path"]
        )


def become_owner(connection: Connection) -> None:
    """Act as the owner of the schema for the rest of the transaction.

    Raises:
        psycopg2.errors.InsufficientPrivilege: the user may not act as the owner.
    """
    run_script(connection, access_file("20_owner.sql"))


def grant(connection: Connection) -> None:
    """Grant the roles their rights on existing objects; does nothing while a role is missing."""
    run_script(connection, access_file("30_grants.sql"))


def missing_roles(connection: Connection) -> list[str]:
    """The roles that do not exist yet."""
    existing = set(connection.execute(_EXISTING, {"roles": list(ROLES)}).scalars())
    return [role for role in ROLES if role not in existing]


def warn_of_missing_roles(connection: Connection) -> None:
    missing = missing_roles(connection)
    if missing:
        logger.warning(
            "roles are missing: %s; nothing is granted until an administrator runs `%s`",
            ", ".join(missing),
            ROLES_COMMAND,
        )


def foreign_schema(connection: Connection) -> str | None:
    """The current schema of the user, or None if it is ours."""
    schema = connection.execute(text("SELECT CAST(current_schema() AS text)")).scalar_one()
    return None if schema == SCHEMA else f"{schema}"
