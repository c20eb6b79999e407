"""Who may do what on PostgreSQL: the scripts that say so, and what an administrator must do."""

from __future__ import annotations

from sqlalchemy import Connection, text

from sam_pipeline.sql.database.script import HERE, run_script

OWNER = "sam_owner"
LOADER = "sam_loader"
ROLES = (OWNER, LOADER, "sam_reporter", "sam_reader")
SCHEMA = "public"
"""Functions that run with the owner's rights find their tables in this schema only."""

_EXISTING = text("SELECT rolname FROM pg_roles WHERE rolname = ANY (:roles)")


def roles_script() -> str:
    """Makes the roles; what they may do with database and schema."""
    return _read("10_roles.sql")


def owner_script() -> str:
    """Becomes the schema's owner for the rest of the transaction."""
    return _read("20_owner.sql")


def grants_script() -> str:
    """What the roles may do with the objects of the schema."""
    return _read("30_grants.sql")


def make_roles(connection: Connection) -> None:
    """Make roles as far as the user may; then act as the schema's owner.

    Raises:
        psycopg2.errors.InsufficientPrivilege: the schema is somebody else's.
    """
    run_script(connection, roles_script())
    run_script(connection, owner_script())


def grant(connection: Connection) -> None:
    """Give the roles their rights on the present objects; nothing, where a role is missing."""
    run_script(connection, grants_script())


def missing_roles(connection: Connection) -> list[str]:
    """Those that an administrator must make."""
    found = set(connection.execute(_EXISTING, {"roles": list(ROLES)}).scalars())
    return [role for role in ROLES if role not in found]


def foreign_schema(connection: Connection) -> str | None:
    """The schema the user works in, where that is not ours."""
    found = connection.execute(text("SELECT CAST(current_schema() AS text)")).scalar_one()
    return None if found == SCHEMA else f"{found}"


def _read(name: str) -> str:
    return (HERE / "access" / name).read_text(encoding="utf-8")
