"""Recreates views, functions, triggers and grants from the `.sql` files."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from sqlalchemy import Connection, Engine, text

from sam_pipeline.sql.checks.check import Problem, misplaced_objects, prefixed, schema_problems
from sam_pipeline.sql.checks.schema_objects import (
    OUR_GRANTEES,
    Key,
    Objects,
    differences,
    grantee_of,
    present_objects,
    wanted_objects,
)
from sam_pipeline.sql.database import roles
from sam_pipeline.sql.database.engine import name_of, writing
from sam_pipeline.sql.database.script import create_statements, run_script
from sam_pipeline.sql.database.statements import TABLES, settle
from sam_pipeline.sql.database.version import require_compatible, wanted_version
from sam_pipeline.sql.errors import (
    DATABASE_ERRORS,
    Kind,
    RepairRefused,
    SchemaMismatch,
    kind_of,
    message_of,
    sqlstate,
)

RECREATABLE = ("view", "function", "trigger")

CANNOT_REPLACE = ("42P13", "42P16")
"""SQLSTATEs of CREATE OR REPLACE if a function's result type or a view's columns differ."""

# Everything that depends on a view or function, except the type and rule that belong to the view.
_DEPENDENTS = text("""
    WITH RECURSIVE dependent (class, oid) AS (
        SELECT CAST(CAST(:class AS regclass) AS oid), CAST(:oid AS oid)
        UNION
        SELECT o.class, o.oid
        FROM dependent AS p
        JOIN pg_depend AS d ON d.refclassid = p.class AND d.refobjid = p.oid
        LEFT JOIN pg_rewrite AS r
            ON r.oid = d.objid AND d.classid = CAST('pg_rewrite' AS regclass)
        CROSS JOIN LATERAL (
            VALUES (d.classid, d.objid), (CAST(CAST('pg_class' AS regclass) AS oid), r.ev_class)
        ) AS o (class, oid)
        WHERE o.oid IS NOT NULL
    )
    SELECT
        o.type,
        CASE o.type
            WHEN 'function' THEN CAST(CAST(p.oid AS regprocedure) AS text)
            ELSE replace(o.identity, 'public.', '')
        END
    FROM dependent AS p
    CROSS JOIN pg_identify_object(p.class, p.oid, 0) AS o
    WHERE o.type <> 'type'
        AND coalesce(o.schema, '') <> 'pg_toast'
        AND o.identity NOT LIKE '"\\_RETURN" on %'
    ORDER BY 1, 2
""")
_OID = {
    "view": text("SELECT 'pg_class' AS class, CAST(to_regclass(:name) AS oid) AS oid"),
    "function": text("SELECT 'pg_proc' AS class, CAST(to_regprocedure(:name) AS oid) AS oid"),
}
_SQLITE_TRIGGERS = text("""
    SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = :view COLLATE NOCASE
""")

logger = logging.getLogger(__name__)


class Repair(NamedTuple):
    """What was done, one line per object, and the problems of the schema that remain."""

    done: list[str]
    problems: list[Problem]


def repair(engine: Engine) -> Repair:
    """Restore the views, functions, triggers, grants and owners of the schema, but no tables.

    Of their rows it corrects which statements hold.

    Everything happens in one transaction. A statement that the database rejects is undone and
    logged, and its problem remains.

    Raises:
        RepairRefused: objects or grants that are not ours would be lost; nothing was changed.
        SchemaMismatch: the schema does not have the version that this program wants.
        ConfigError: the current schema of the user is not ours.
        DatabaseRefused: the user may not act as the owner of the schema.
        DatabaseAway: the database is unavailable.
    """
    schema = require_compatible(engine)
    if not schema.is_wanted:
        text = f"{name_of(engine)}: {schema}; only programs of that version repair it"
        raise SchemaMismatch(text, schema.version, wanted_version())
    done: list[str] = []
    with writing(engine) as connection:
        is_postgresql = connection.dialect.name == "postgresql"
        if is_postgresql:
            roles.lock_schema(connection)
            roles.become_owner(connection)
        before, ours = present_objects(connection), wanted_objects(connection)
        if is_postgresql:
            roles.warn_of_missing_roles(connection)
            # Changing owners takes the rights of the login itself, not those of the owner.
            run_script(connection, "SET LOCAL ROLE NONE")
            owner, _, objects = misplaced_objects(connection, ours)
            for kind, name, other in [] if owner in roles.missing_roles(connection) else objects:
                with _attempt(connection, f"{kind} {name}"):
                    run_script(connection, f"ALTER {kind} {name} OWNER TO {owner}")
                    done.append(f"changed the owner of {kind} {name} from {other} to {owner}")
            roles.become_owner(connection)
            # A function may call one that is created after it.
            run_script(connection, "SET LOCAL check_function_bodies = off")
        created: list[Key] = []
        for difference in differences(before, ours):
            key = (difference.kind, difference.name)
            if difference.kind in RECREATABLE and key not in created:
                with _attempt(connection, str(difference)):
                    created += _recreate(connection, key, ours)
        done += [f"created {kind} {name}" for kind, name in created]
        if is_postgresql:
            done += _correct_grants(connection, before, ours)
        for table in TABLES:  # usually it is known already which statements hold
            with _attempt(connection, f"table {table.name}"):
                if number := settle(connection, table):
                    done.append(f"{table.view}: {number} other statements hold")
        return Repair(done, prefixed(engine, schema_problems(connection)))


@contextmanager
def _attempt(connection: Connection, subject: str) -> Iterator[None]:
    """Undo the block and log why, if the database rejects one of its statements."""
    try:
        with connection.begin_nested():
            yield
    except DATABASE_ERRORS as error:
        if kind_of(error) is Kind.RETRY:
            raise
        logger.warning("%s: %s", subject, message_of(error))


def _recreate(connection: Connection, key: Key, ours: Objects) -> list[Key]:
    """Recreate an object, and our objects that depend on it if it must be dropped first.

    Returns the keys of all recreated objects. Raises RepairRefused if other objects depend on it.
    """
    kind, name = key
    statements = create_statements(connection.dialect.name)
    statement = statements[kind, name.partition("(")[0]]  # without arguments
    is_sqlite = connection.dialect.name == "sqlite"
    if is_sqlite or kind == "trigger":
        triggers: Sequence[str] = ()
        if is_sqlite and kind == "view":  # dropping it drops all its triggers, ours or not
            triggers = connection.execute(_SQLITE_TRIGGERS, {"view": name}).scalars().all()
        for script in (f"DROP {kind} IF EXISTS {name}", statement, *triggers):
            run_script(connection, script)
        return [key]
    try:
        with connection.begin_nested():
            run_script(connection, statement.replace("CREATE", "CREATE OR REPLACE", 1))
        return [key]
    except DATABASE_ERRORS as error:
        if sqlstate(error) not in CANNOT_REPLACE:
            raise
    oid = connection.execute(_OID[kind], {"name": name}).one()
    dependents = [(row[0], row[1]) for row in connection.execute(_DEPENDENTS, oid._asdict())]
    foreign = ", ".join(" ".join(other) for other in dependents if other not in ours)
    if foreign:
        raise RepairRefused(
            f"{name_of(connection.engine)}: {kind} {name} can't be replaced in place, and dropping"
            f" it would drop {foreign}: drop these yourself, repair, and create them again;"
            " nothing was changed"
        )
    recreated = [our_key for our_key in ours if our_key in dependents]
    for our_key in reversed(recreated):
        run_script(connection, f"DROP {' '.join(our_key)}")
    for kind, name in recreated:
        run_script(connection, statements[kind, name.partition("(")[0]])
    return recreated


def _correct_grants(connection: Connection, before: Objects, ours: Objects) -> list[str]:
    """Grant our roles the rights of 30_grants.sql, and other roles the rights they had `before`."""
    done: list[str] = []
    for kind, grant, state, _ in differences(present_objects(connection), ours):
        if kind != "grant":
            continue
        right, _, grantee = grant.rpartition(" TO ")
        with _attempt(connection, f"grant {grant}"):
            if state != "missing":
                run_script(connection, f"REVOKE {right} FROM {grantee} CASCADE")
            if state != "unexpected":
                run_script(connection, f"GRANT {grant}")
            # Recreating an object loses its grants; restoring those is not reported.
            if state == "missing" and (kind, grant) not in before:
                done.append(f"granted {grant}")
            elif state != "missing" and (kind, grant) in before:
                done.append(f"revoked {grant}")
    now = present_objects(connection)
    for (kind, grant), old in before.items():
        if kind == "grant" and (kind, grant) not in now and grantee_of(grant) not in OUR_GRANTEES:
            try:
                run_script(connection, f"GRANT {grant} {old.definition}")
            except DATABASE_ERRORS as error:
                if kind_of(error) is Kind.RETRY:
                    raise
                raise RepairRefused(
                    f"{name_of(connection.engine)}: grant {grant} would be lost"
                    f" ({message_of(error)}): revoke it first; nothing was changed"
                ) from error
    return done
