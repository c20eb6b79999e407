"""Who may do what on PostgreSQL: the scripts that say so, and what an administrator must do."""

from __future__ import annotations

import logging

from sqlalchemy import Connection, text

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.sql.database.engine import name_of
from sam_pipeline.sql.database.script import HERE, run_script

OWNER = "sam_owner"
LOADER = "sam_loader"
ROLES = (OWNER, LOADER, "sam_reporter", "sam_reader")
SCHEMA = "public"
"""Functions that run with the owner's rights find their tables in this schema only."""

ROLES_COMMAND = "sam-db sql --roles | psql"
"""For an administrator, where the user may not create roles."""

SCHEMA_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('sam', 0))"
"""Of two upgrades or repairs at once the second waits."""

logger = logging.getLogger(__name__)

_EXISTING = text("SELECT rolname FROM pg_roles WHERE rolname = ANY (:roles)")


def roles_script() -> str:
    """Creates the roles and grants their rights on database and schema."""
    return _read("10_roles.sql")


def owner_script() -> str:
    """Becomes the schema's owner for the rest of the transaction."""
    return _read("20_owner.sql")


def grants_script() -> str:
    """Grants the roles their rights on the objects of the schema."""
    return _read("30_grants.sql")


def lock_schema(connection: Connection) -> None:
    """Nobody else upgrades or repairs the schema until the transaction ends.

    Raises:
        ConfigError: the user works in another schema than ours.
    """
    connection.execute(text(SCHEMA_LOCK))
    foreign = foreign_schema(connection)
    if foreign is not None:
        where = name_of(connection.engine)
        raise ConfigError(
            [f"{where}: the user's schema is {foreign}, not {SCHEMA}: set its search_path"]
        )


def become_owner(connection: Connection) -> None:
    """Act as the schema's owner for the rest of the transaction.

    Raises:
        psycopg2.errors.InsufficientPrivilege: the schema is somebody else's.
    """
    run_script(connection, owner_script())


def grant(connection: Connection) -> None:
    """Grant the roles their rights on the present objects; nothing while a role is missing."""
    run_script(connection, grants_script())


def missing_roles(connection: Connection) -> list[str]:
    """Those that an administrator must create."""
    existing = set(connection.execute(_EXISTING, {"roles": list(ROLES)}).scalars())
    return [role for role in ROLES if role not in existing]


def warn_of_missing_roles(connection: Connection) -> None:
    missing = missing_roles(connection)
    if missing:
        logger.warning(
            "no role %s: nothing is granted to them; an administrator must run `%s`",
            ", ".join(missing),
            ROLES_COMMAND,
        )


def foreign_schema(connection: Connection) -> str | None:
    """The schema the user works in, if it is not ours."""
    schema = connection.execute(text("SELECT CAST(current_schema() AS text)")).scalar_one()
    return None if schema == SCHEMA else f"{schema}"


def _read(name: str) -> str:
    return (HERE / "access" / name).read_text(encoding="utf-8")
