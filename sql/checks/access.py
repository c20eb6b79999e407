"""The roles of PostgreSQL: whether they exist, and their rights on database and schema."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, text

from sam_pipeline.sql.checks.problem import Problem
from sam_pipeline.sql.database.roles import OWNER, ROLES, ROLES_COMMAND, SCHEMA, missing_roles

PUBLIC = "PUBLIC"

_NEEDED = {
    "DATABASE": {role: {"CONNECT"} for role in ROLES} | {OWNER: {"CONNECT", "CREATE", "TEMPORARY"}},
    "SCHEMA": {role: {"USAGE"} for role in ROLES} | {OWNER: {"USAGE", "CREATE"}},
}
_ALLOWED_TO_ALL = {"DATABASE": {"CONNECT"}, "SCHEMA": {"USAGE"}}

_RIGHTS = text("""
    SELECT target.kind, coalesce(CAST(r.rolname AS text), 'PUBLIC'), target.privilege_type
    FROM (
        SELECT 'DATABASE' AS kind, x.*
        FROM pg_database AS d, aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) AS x
        WHERE d.datname = current_database()
        UNION ALL
        SELECT 'SCHEMA', x.*
        FROM pg_namespace AS n, aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) AS x
        WHERE n.nspname = :schema
    ) AS target
    LEFT JOIN pg_roles AS r ON r.oid = target.grantee
    WHERE target.grantee = 0 OR r.rolname = ANY (:roles)
""")
# The owner may be a member of other roles; the other roles have only the rights that we grant.
_MEMBERS = text("""
    SELECT CAST(m.rolname AS text), format('%I', g.rolname)
    FROM pg_auth_members AS a
    JOIN pg_roles AS m ON m.oid = a.member
    JOIN pg_roles AS g ON g.oid = a.roleid
    WHERE m.rolname = ANY (:roles) AND m.rolname <> 'sam_owner'
    ORDER BY 1, 2
""")
_POWERFUL = text("""
    SELECT CAST(rolname AS text) FROM pg_roles
    WHERE rolname = ANY (:roles)
        AND (rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls)
    ORDER BY 1
""")


def access_problems(connection: Connection) -> Iterator[Problem]:
    """Missing roles, or differences from the roles and grants of `sam-db sql --roles`."""
    missing = missing_roles(connection)
    if missing:
        roles = f"role {missing[0]} is" if len(missing) == 1 else f"roles {', '.join(missing)} are"
        yield Problem(f"{roles} missing", ROLES_COMMAND)
        return
    for role in connection.execute(_POWERFUL, {"roles": list(ROLES)}).scalars():
        yield Problem(
            f"role {role} has server-wide privileges",
            f"ALTER ROLE {role} NOSUPERUSER NOCREATEROLE NOCREATEDB NOREPLICATION NOBYPASSRLS;",
        )
    for role, group in connection.execute(_MEMBERS, {"roles": list(ROLES)}):
        yield Problem(f"role {role} is a member of {group}", f"REVOKE {group} FROM {role};")
    rights = set(connection.execute(_RIGHTS, {"schema": SCHEMA, "roles": list(ROLES)}))
    database = connection.scalar(text("SELECT quote_ident(current_database())"))
    for kind, name in (("DATABASE", database), ("SCHEMA", SCHEMA)):
        for role in (PUBLIC, *ROLES):
            has = {right for of, grantee, right in rights if (of, grantee) == (kind, role)}
            needs = _NEEDED[kind].get(role, set())
            target = f"ON {kind} {name} TO {role}"
            for right in sorted(needs - has):
                yield Problem(f"grant {right} {target} is missing", ROLES_COMMAND)
            for right in sorted(has - needs - _ALLOWED_TO_ALL[kind]):
                yield Problem(f"unexpected grant {right} {target}", ROLES_COMMAND)
