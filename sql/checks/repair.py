"""Recreates views, functions, triggers and grants from the `.sql` files."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from sqlalchemy import Connection, Engine, text

from sam_pipeline.sql.checks.check import named, schema_problems
from sam_pipeline.sql.checks.ownership import right_owner, strays
from sam_pipeline.sql.checks.problem import Problem
from sam_pipeline.sql.checks.schema_objects import (
    GRANTED,
    Key,
    Objects,
    differences,
    grantee_of,
    present,
    wanted,
)
from sam_pipeline.sql.database import roles
from sam_pipeline.sql.database.engine import name_of, writing
from sam_pipeline.sql.database.script import creating, run_script
from sam_pipeline.sql.database.version import require_current
from sam_pipeline.sql.errors import (
    DATABASE_ERRORS,
    Kind,
    RepairRefused,
    kind_of,
    message_of,
    sqlstate,
)

RECREATED = ("view", "function", "trigger")

CANNOT_REPLACE = ("42P13", "42P16")
"""SQLSTATEs of CREATE OR REPLACE for another result of a function, or other columns of a view."""

# Everything that depends on a view or function, except its row type and the rule of the view.
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

    This is one transaction. If the database rejects a statement, that is logged, and the problem
    remains.

    Raises:
        RepairRefused: the site's own objects or grants would be lost; nothing was changed.
        SchemaMismatch: the schema has another version than this program needs.
        ConfigError: the user works in another schema than ours.
        DatabaseRefused: the user may not act as the owner of the schema.
        DatabaseAway: the database is unavailable.
    """
    require_current(engine)
    with writing(engine) as connection:
        if connection.dialect.name == "sqlite":
            created = _recreate_different(connection, present(connection), wanted(connection))
            return Repair(created, named(name_of(engine), schema_problems(connection)))
        roles.lock_schema(connection)
        roles.become_owner(connection)
        before, ours = present(connection), wanted(connection)
        roles.warn_of_missing_roles(connection)
        connection.execute(text("SET LOCAL ROLE NONE"))  # only the user may change owners
        done: list[str] = []
        owner = right_owner(connection)
        if owner.name not in roles.missing_roles(connection):
            for kind, name, other in strays(connection, ours, owner):
                with _attempt(connection, f"{kind} {name}"):
                    run_script(connection, f"ALTER {kind} {name} OWNER TO {owner.name}")
                    done.append(f"gave {kind} {name} from {other} to {owner.name}")
        roles.become_owner(connection)
        # A function may refer to another one that does not exist yet.
        connection.execute(text("SET LOCAL check_function_bodies = off"))
        done += _recreate_different(connection, before, ours)
        done += _correct_grants(connection, before, ours)
        return Repair(done, named(name_of(engine), schema_problems(connection)))


@contextmanager
def _attempt(connection: Connection, subject: str) -> Iterator[None]:
    """If the database rejects a statement in the block, undo the block, and log why."""
    try:
        with connection.begin_nested():
            yield
    except DATABASE_ERRORS as error:
        if kind_of(error) is Kind.RETRY:
            raise
        logger.warning("%s: %s", subject, message_of(error))


def _recreate_different(connection: Connection, before: Objects, ours: Objects) -> list[str]:
    created: list[Key] = []
    for difference in differences(before, ours):
        key = (difference.kind, difference.name)
        if difference.kind in RECREATED and key not in created:
            with _attempt(connection, str(difference)):
                created += _recreate(connection, key, ours)
    return [f"created {kind} {name}" for kind, name in created]


def _recreate(connection: Connection, key: Key, ours: Objects) -> list[Key]:
    """Recreate an object, and those of ours that depend on it if it must be dropped first.

    Returns the keys of all recreated objects.

    Raises:
        RepairRefused: an object of the site depends on it.
    """
    kind, name = key
    statement = _creating(connection, key)
    if connection.dialect.name == "sqlite":
        triggers: Sequence[str] = ()
        if kind == "view":  # dropping it drops its triggers, including those of the site
            triggers = connection.execute(_SQLITE_TRIGGERS, {"view": name}).scalars().all()
        for script in (f"DROP {kind} IF EXISTS {name}", statement, *triggers):
            run_script(connection, script)
        return [key]
    if kind == "trigger":
        run_script(connection, f"DROP TRIGGER IF EXISTS {name}; {statement}")
        return [key]
    try:
        with connection.begin_nested():
            run_script(connection, statement.replace("CREATE", "CREATE OR REPLACE", 1))
        return [key]
    except DATABASE_ERRORS as error:
        if sqlstate(error) not in CANNOT_REPLACE:
            raise
    dependents = connection.execute(
        _DEPENDENTS, connection.execute(_OID[kind], {"name": name}).one()._asdict()
    )
    dropped = [(str(kind), str(name)) for kind, name in dependents]
    theirs = ", ".join(f"{kind} {name}" for kind, name in dropped if (kind, name) not in ours)
    if theirs:
        raise RepairRefused(
            f"{name_of(connection.engine)}: {kind} {name} can't be replaced in place, and dropping"
            f" it would drop {theirs}: drop these, repair, and create them again; nothing was"
            " changed"
        )
    recreated = [other for other in ours if other in dropped]
    for kind, name in reversed(recreated):
        run_script(connection, f"DROP {kind} {name}")
    for other in recreated:
        run_script(connection, _creating(connection, other))
    return recreated


def _creating(connection: Connection, key: Key) -> str:
    kind, name = key
    return creating(connection.dialect.name)[kind, name.partition("(")[0]]


def _correct_grants(connection: Connection, before: Objects, ours: Objects) -> list[str]:
    """Grant our roles the rights of 30_grants.sql, and other roles those they had `before`."""
    done: list[str] = []
    for kind, grant, state, _ in differences(present(connection), ours):
        if kind != "grant":
            continue
        right, _, grantee = grant.rpartition(" TO ")
        with _attempt(connection, f"grant {grant}"):
            if state != "missing":
                run_script(connection, f"REVOKE {right} FROM {grantee} CASCADE")
            if state != "unexpected":
                run_script(connection, f"GRANT {grant}")
            # Only real changes are reported, not those of an object that was recreated.
            if state == "missing" and (kind, grant) not in before:
                done.append(f"granted {grant}")
            elif state != "missing" and (kind, grant) in before:
                done.append(f"revoked {grant}")
    now = present(connection)
    for (kind, grant), old in before.items():
        if kind == "grant" and (kind, grant) not in now and grantee_of(grant) not in GRANTED:
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
