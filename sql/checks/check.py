"""All problems of a database at once: schema, owners, roles, grants and harmful settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sqlalchemy import Connection, Engine, text

from sam_pipeline.sql.checks.schema_objects import (
    Objects,
    differences,
    present_objects,
    wanted_objects,
)
from sam_pipeline.sql.database.engine import DIRECT, name_of, reading
from sam_pipeline.sql.database.roles import (
    LOADER,
    OWNER,
    ROLES,
    ROLES_COMMAND,
    SCHEMA,
    foreign_schema,
    missing_roles,
)
from sam_pipeline.sql.database.script import view_names
from sam_pipeline.sql.database.version import require_compatible
from sam_pipeline.sql.errors import DATABASE_ERRORS, Kind, kind_of, message_of
from sam_pipeline.sql.loading.catalogue import class_views

REPAIR_COMMAND = "sam-db repair"

IN_TABLES = ("column", "constraint", "index")
"""Kinds of objects that are part of a table. Like tables they are reported, but never altered."""

TABLES_OF_LOADERS = ("dead_letter", "loaded_batch")
"""Tables that a loader writes besides the class views."""

_WITHOUT_INSERT = text("""
    SELECT name FROM unnest(CAST(:names AS text[])) AS name
    WHERE NOT has_any_column_privilege(quote_ident(name), 'INSERT')
    ORDER BY name
""")
_SESSION = text("SELECT quote_ident(current_user), quote_ident(current_database())")

OLDEST_POSTGRESQL = 130000
"""`server_version_num` of PostgreSQL 13."""

_HARMFUL = {
    "synchronous_commit": ("on", "a crash can lose acked messages", ("off", "false", "no", "0")),
    "fsync": ("on", "a crash can corrupt the database", ("off",)),
    "session_replication_role": ("origin", "triggers may not fire", ("replica", "local")),
}
"""The good value, the danger of the bad ones, and the spellings of the bad ones."""

# Settings that sessions of the loader inherit. A superuser counts as a member of every role.
_OF_LOADER = text("""
    SELECT
        split_part(setting, '=', 1) AS name,
        split_part(setting, '=', 2) AS value,
        coalesce('ALTER ROLE ' || quote_ident(r.rolname) || ' ', 'ALTER DATABASE ')
        || CASE
            WHEN r.oid IS NULL THEN format('%I ', d.datname)
            WHEN d.oid IS NOT NULL THEN format('IN DATABASE %I ', d.datname)
            ELSE ''
        END
        || 'RESET ' || split_part(setting, '=', 1) || ';' AS repair
    FROM pg_db_role_setting AS s
    CROSS JOIN unnest(s.setconfig) AS setting
    LEFT JOIN pg_roles AS r ON r.oid = s.setrole
    LEFT JOIN pg_database AS d ON d.oid = s.setdatabase
    WHERE lower(setting) = ANY (:harmful)
        AND (s.setdatabase = 0 OR d.datname = current_database())
        AND (
            s.setrole = 0
            OR r.rolname = current_user
            OR r.rolname = 'sam_loader'
            OR NOT r.rolsuper AND EXISTS (
                SELECT FROM pg_roles AS loader
                WHERE loader.rolname = 'sam_loader' AND pg_has_role(r.oid, loader.oid, 'MEMBER')
            )
        )
    ORDER BY repair
""")
# The partitions of results, and the locks that a statement on all of them takes.
_PARTITIONS = text("""
    SELECT
        count(DISTINCT right(c.relname, 8)),
        count(*) + sum((SELECT count(*) FROM pg_index AS x WHERE x.indrelid = c.oid))
    FROM pg_inherits AS i
    JOIN pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent IN (to_regclass('metric_result'), to_regclass('metric_result_detail'))
""")
_DIRECT = text("SELECT current_setting(:name, true)")
_SOURCE = text("SELECT source FROM pg_settings WHERE name = :name")

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


class Problem(NamedTuple):
    """`repair` is the command or statement that solves it; None if there is none."""

    text: str
    repair: str | None = None


def find_problems(engine: Engine) -> list[Problem]:
    """All problems of schema, grants and settings.

    Of a compatible schema of another version, neither objects nor grants are compared.

    Raises:
        SchemaMismatch: this program does not support the schema; nothing else was checked.
        DatabaseAway: the database is unavailable.
    """
    problems: list[Problem] = []
    with reading(engine) as connection:
        is_postgresql = connection.dialect.name == "postgresql"
        foreign = foreign_schema(connection) if is_postgresql else None
        if foreign is not None:
            user, database = connection.execute(_SESSION).one()
            statement = f"ALTER ROLE {user} IN DATABASE {database} SET search_path = {SCHEMA};"
            problems.append(Problem(f"the user's schema is {foreign}, not {SCHEMA}", statement))
            return prefixed(engine, problems)
    schema = require_compatible(engine)
    with reading(engine) as connection:
        problems += setting_problems(connection)
        if schema.is_wanted:
            if is_postgresql:
                problems += access_problems(connection)
            try:
                with connection.begin_nested():
                    problems += [*schema_problems(connection)]
            except DATABASE_ERRORS as error:
                if kind_of(error) is Kind.RETRY:
                    raise
                refused = "tables, views and grants can't be compared (run as their owner)"
                problems.append(Problem(f"{refused}: {message_of(error)}"))
    # Only classes that are not part of the schema, whose views were compared above.
    views_of_schema = view_names(engine.dialect.name)
    for view in class_views(engine):
        if view.problem and view.name not in views_of_schema:
            problems.append(Problem(f"class {view.name}: {view.problem}"))
    return prefixed(engine, problems)


def schema_problems(connection: Connection) -> Iterator[Problem]:
    """Where the objects of the schema differ from those of the `.sql` files."""
    ours = wanted_objects(connection)
    for difference in differences(present_objects(connection), ours):
        if difference.kind in IN_TABLES and difference.wanted:
            yield Problem(f"{difference} (expected: {difference.wanted})")
        else:
            is_repairable = difference.kind not in ("table", *IN_TABLES)
            yield Problem(str(difference), REPAIR_COMMAND if is_repairable else None)
    if connection.dialect.name == "postgresql":
        owner, replaces_superuser, objects = misplaced_objects(connection, ours)
        if objects:
            others = ", ".join(sorted({other for *_, other in objects}))
            reason = ": functions run with the rights of their owner" if replaces_superuser else ""
            belong = "1 object belongs" if len(objects) == 1 else f"{len(objects)} objects belong"
            yield Problem(f"{belong} to {others}, not to {owner}{reason}", REPAIR_COMMAND)


def loader_problems(engine: Engine) -> list[Problem]:
    """Problems that prevent this user from loading, or could lose loaded data.

    Raises:
        DatabaseAway: the database is unavailable.
    """
    views = class_views(engine)
    problems = [Problem(f"class {view.name}: {view.problem}") for view in views if view.problem]
    if engine.dialect.name == "postgresql":
        names = [*TABLES_OF_LOADERS, *(view.name for view in views if not view.problem)]
        with reading(engine) as connection:
            problems += harmful_settings(connection)
            for name in connection.execute(_WITHOUT_INSERT, {"names": names}).scalars():
                statement = f"GRANT INSERT ON {name} TO {LOADER};"
                problems.append(Problem(f"this user lacks INSERT on {name}", statement))
    return prefixed(engine, problems)


def prefixed(engine: Engine, problems: Iterable[Problem]) -> list[Problem]:
    return [Problem(f"{name_of(engine)}: {text}", repair) for text, repair in problems]


def setting_problems(connection: Connection) -> Iterator[Problem]:
    if connection.dialect.name == "sqlite":
        mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
        if mode != "wal":
            why = "readers and the loader block each other"
            yield Problem(f"journal_mode is {mode}, not wal: {why}", "PRAGMA journal_mode = WAL;")
        return
    if int(_setting(connection, "server_version_num")) < OLDEST_POSTGRESQL:
        version = _setting(connection, "server_version")
        yield Problem(f"PostgreSQL {version} is too old: expected 13 or newer")
    yield from harmful_settings(connection)
    # Too little room for the locks of a statement that reads all days.
    days, needed = connection.execute(_PARTITIONS).one()
    names = ("max_connections", "max_prepared_transactions", "max_locks_per_transaction")
    connections, prepared, per_transaction = (int(_setting(connection, name)) for name in names)
    room = (connections + prepared) * per_transaction
    if needed and needed > room / 2:
        wanted = 64
        while wanted * (connections + prepared) < 2 * needed:
            wanted *= 2
        yield Problem(
            f"max_locks_per_transaction is {per_transaction}: reading all {days} days of results"
            f" takes {needed} locks, and all sessions share {room}; set it to {wanted} and restart"
            " the server, or prune",
            f"ALTER SYSTEM SET max_locks_per_transaction = {wanted};",
        )
    if (zone := _setting(connection, "timezone").upper()) != "UTC":
        yield Problem(f"timezone is {zone}, not UTC")


def harmful_settings(connection: Connection) -> Iterator[Problem]:
    """Settings that could lose committed data, and a pooler that drops those of our sessions."""
    if connection.execute(_DIRECT, {"name": DIRECT}).scalar() is None:
        yield Problem(
            "the URL leads to a pooler in transaction mode, which drops session settings such as"
            " lock_timeout, so statements may wait for a lock forever, and temporary tables may be"
            " missing: connect to PostgreSQL directly, or set pool_mode = session"
        )
    bad = [f"{name}={value}" for name, (_, _, values) in _HARMFUL.items() for value in values]
    for name, value, statement in connection.execute(_OF_LOADER, {"harmful": bad}):
        yield Problem(f"{name} is {value}: {_HARMFUL[name][1]}", statement)
    for name, (good, why, values) in _HARMFUL.items():
        value = _setting(connection, name)
        source = connection.execute(_SOURCE, {"name": name}).scalar_one()
        if value in values and source not in ("database", "user", "database user"):  # see above
            statement = f"ALTER SYSTEM SET {name} = {good}; SELECT pg_reload_conf();"
            # No statement overrides the command line of the server.
            is_in_file = source in ("configuration file", "default")
            yield Problem(f"{name} is {value}: {why}", statement if is_in_file else None)


def _setting(connection: Connection, name: str) -> str:
    return str(connection.execute(text("SELECT current_setting(:name)"), {"name": name}).scalar())


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
        for role in ("PUBLIC", *ROLES):
            has = {right for of, grantee, right in rights if (of, grantee) == (kind, role)}
            needs = _NEEDED[kind].get(role, set())
            target = f"ON {kind} {name} TO {role}"
            for right in sorted(needs - has):
                yield Problem(f"grant {right} {target} is missing", ROLES_COMMAND)
            for right in sorted(has - needs - _ALLOWED_TO_ALL[kind]):
                yield Problem(f"unexpected grant {right} {target}", ROLES_COMMAND)


def misplaced_objects(
    connection: Connection, wanted: Objects
) -> tuple[str, bool, list[tuple[str, str, str]]]:
    """The wanted objects that belong to another role than the schema does.

    Returns the owner of the schema, which is sam_owner instead of a superuser; whether it is that;
    and kind, name and owner of the objects.
    """
    owner, is_superuser = connection.execute(_OWNER).one()
    owner = OWNER if is_superuser else owner
    rows = connection.execute(_OWNED)
    others = [
        (kind, name, other)
        for kind, name, root, other in rows
        if (kind, root) in wanted and other != owner
    ]
    return owner, is_superuser, others
