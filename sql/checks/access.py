"""What `sam-db check` says about roles: do they exist, and what may they do outside our objects."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sqlalchemy import Connection, text

from sam_pipeline.sql.checks.difference import Problem
from sam_pipeline.sql.database.roles import OWNER, ROLES, SCHEMA, missing_roles
from sam_pipeline.sql.database.version import access_script

PUBLIC = "PUBLIC"

_NEEDED = {
    "DATABASE": {role: {"CONNECT"} for role in ROLES} | {OWNER: {"CONNECT", "CREATE", "TEMPORARY"}},
    "SCHEMA": {role: {"USAGE"} for role in ROLES} | {OWNER: {"USAGE", "CREATE"}},
}
_ALLOWED_TO_ALL = {"DATABASE": {"CONNECT"}, "SCHEMA": {"USAGE"}}

_RIGHTS = text("""
    SELECT found.kind, found.name, coalesce(CAST(r.rolname AS text), 'PUBLIC'), found.privilege_type
    FROM (
        SELECT 'DATABASE' AS kind, format('%I', d.datname) AS name, x.*
        FROM pg_database AS d, aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) AS x
        WHERE d.datname = current_database()
        UNION ALL
        SELECT 'SCHEMA', format('%I', n.nspname), x.*
        FROM pg_namespace AS n, aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) AS x
        WHERE n.nspname = :schema
    ) AS found
    LEFT JOIN pg_roles AS r ON r.oid = found.grantee
    WHERE found.grantee = 0 OR r.rolname = ANY (:roles)
""")
_NAMES = text("""
    SELECT
        format('%I', current_database()),
        format('%I', pg_get_userbyid(relowner))
    FROM pg_class
    WHERE oid = to_regclass('alembic_version')
""")
_NOT_INSERTED = text("""
    SELECT name FROM unnest(CAST(:names AS text[])) AS name
    WHERE NOT has_any_column_privilege(quote_ident(name), 'INSERT')
    ORDER BY name
""")
# The owner may well be a member of something; the others have their rights from us alone.
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


def access_problems(connection: Connection) -> list[Problem]:
    """Missing roles; or where roles, database and schema are not as `sam-db sql --roles` has it."""
    missing = missing_roles(connection)
    if missing:
        # The script puts all in order that is looked at here.
        return [Problem(f"no role {', '.join(missing)}", access_script())]
    return [*_of_roles(connection), *_of_rights(connection)]


def closed_to_us(connection: Connection, names: Collection[str]) -> list[str]:
    """Which of these tables and views the user may not INSERT into."""
    return list(connection.execute(_NOT_INSERTED, {"names": list(names)}).scalars())


def _of_roles(connection: Connection) -> Iterator[Problem]:
    for role in connection.execute(_POWERFUL, {"roles": list(ROLES)}).scalars():
        yield Problem(
            f"role {role} has powers over the whole server",
            f"ALTER ROLE {role} NOSUPERUSER NOCREATEROLE NOCREATEDB NOREPLICATION NOBYPASSRLS;",
        )
    for role, group in connection.execute(_MEMBERS, {"roles": list(ROLES)}):
        yield Problem(f"role {role} is a member of {group}", f"REVOKE {group} FROM {role};")


def _of_rights(connection: Connection) -> Iterator[Problem]:
    bound = {"schema": SCHEMA, "roles": list(ROLES)}
    found = {tuple(row) for row in connection.execute(_RIGHTS, bound)}
    database, owner = connection.execute(_NAMES).one()
    for kind, name in (("DATABASE", database), ("SCHEMA", SCHEMA)):
        where = f"{kind} {name}"
        for role in (PUBLIC, *ROLES):
            has = {right for k, _, r, right in found if (k, r) == (kind, role)}
            needs = _NEEDED[kind].get(role, set())
            for right in sorted(needs - has):
                yield Problem(
                    f"grant {right} ON {where} TO {role} is missing",
                    f"GRANT {right} ON {where} TO {role};",
                )
            for right in sorted(has - needs - _ALLOWED_TO_ALL[kind]):
                mend = f"REVOKE {right} ON {where} FROM {role};"
                if role == PUBLIC and owner != OWNER:  # who may have had it as one of all
                    mend = f"GRANT {right} ON {where} TO {owner};\n{mend}"
                yield Problem(f"grant {right} ON {where} TO {role} is too much", mend)
