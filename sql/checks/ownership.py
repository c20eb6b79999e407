"""The role that should own the objects of the schema, and the objects that another role owns."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, text

from sam_pipeline.sql.checks.problem import REPAIR_COMMAND, Problem
from sam_pipeline.sql.checks.schema_objects import Objects
from sam_pipeline.sql.database.roles import OWNER

_OWNER = text("""
    SELECT quote_ident(r.rolname), r.rolsuper FROM pg_class AS c
    JOIN pg_roles AS r ON r.oid = c.relowner
    WHERE c.oid = to_regclass('alembic_version')
""")
# A partition belongs to the owner of its table.
_OWNED = text("""
    SELECT kind, name, root, quote_ident(pg_get_userbyid(owner))
    FROM (
        SELECT
            CASE relkind WHEN 'v' THEN 'view' ELSE 'table' END,
            CAST(CAST(oid AS regclass) AS text),
            CAST(coalesce(pg_partition_root(oid), CAST(oid AS regclass)) AS text),
            relowner
        FROM pg_class
        WHERE relnamespace = CAST(current_schema() AS regnamespace) AND relkind IN ('r', 'p', 'v')
        UNION ALL
        SELECT 'function', CAST(CAST(oid AS regprocedure) AS text),
            CAST(CAST(oid AS regprocedure) AS text), proowner
        FROM pg_proc
        WHERE pronamespace = CAST(current_schema() AS regnamespace) AND prokind = 'f'
    ) AS object (kind, name, root, owner)
    ORDER BY name
""")


class Owner(NamedTuple):
    name: str
    replaces_superuser: bool
    """Whether the schema still belongs to a superuser."""


class Stray(NamedTuple):
    """An object of ours that belongs to another role."""

    kind: str
    name: str
    owner: str


def right_owner(connection: Connection) -> Owner:
    """The owner of the schema, or sam_owner if that is a superuser."""
    name, is_superuser = connection.execute(_OWNER).one()
    return Owner(OWNER, True) if is_superuser else Owner(name, False)


def strays(connection: Connection, wanted: Objects, owner: Owner) -> list[Stray]:
    """The wanted objects that belong to a role other than `owner`."""
    return [
        Stray(kind, name, other)
        for kind, name, root, other in connection.execute(_OWNED)
        if (kind, root) in wanted and other != owner.name
    ]


def ownership_problems(connection: Connection, wanted: Objects) -> list[Problem]:
    owner = right_owner(connection)
    misplaced = strays(connection, wanted, owner)
    if not misplaced:
        return []
    others = ", ".join(sorted({stray.owner for stray in misplaced}))
    reason = ": functions run with the rights of their owner" if owner.replaces_superuser else ""
    number = "1 object belongs" if len(misplaced) == 1 else f"{len(misplaced)} objects belong"
    problem = f"{number} to {others}, not to {owner.name}{reason}"
    return [Problem(problem, REPAIR_COMMAND)]
