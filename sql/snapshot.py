"""What objects a database has and what each looks like: to compare with what it should have."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing

from sqlalchemy import Connection, text

from sql.script import present_state, run_present_state

Snapshot = Mapping[tuple[str, str], str]
"""Definitions by kind and name: ("view", "metricoutput")."""

SCRATCH = "sam_scratch"
"""A schema that lives for a part of one transaction."""

_SQLITE = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL"

# Definitions as PostgreSQL prints them, which is the same for equal objects of one server.
_POSTGRESQL = text("""
    SELECT 'table' AS kind, c.relname AS name, string_agg(
        concat_ws(
            ' ', a.attname, format_type(a.atttypid, a.atttypmod),
            CASE WHEN a.attnotnull THEN 'not null' END, pg_get_expr(d.adbin, d.adrelid),
            nullif(a.attidentity, ''), o.collname
        ), ', ' ORDER BY a.attnum
    ) AS definition
    FROM pg_class AS c
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
    LEFT JOIN pg_collation AS o ON o.oid = a.attcollation
    WHERE c.relkind = 'r' AND c.relnamespace = CAST(:schema AS regnamespace)
    GROUP BY c.relname
    UNION ALL
    SELECT 'constraint', concat_ws('.', c.relname, k.conname), pg_get_constraintdef(k.oid)
    FROM pg_constraint AS k
    JOIN pg_class AS c ON c.oid = k.conrelid
    WHERE c.relnamespace = CAST(:schema AS regnamespace)
    UNION ALL
    SELECT 'index', i.indexname, i.indexdef FROM pg_indexes AS i WHERE i.schemaname = :schema
    UNION ALL
    SELECT 'view', c.relname, pg_get_viewdef(c.oid)
    FROM pg_class AS c
    WHERE c.relkind = 'v' AND c.relnamespace = CAST(:schema AS regnamespace)
    UNION ALL
    SELECT 'trigger', t.tgname, concat_ws(' ', pg_get_triggerdef(t.oid, true), t.tgenabled)
    FROM pg_trigger AS t
    JOIN pg_class AS c ON c.oid = t.tgrelid
    WHERE NOT t.tgisinternal AND c.relnamespace = CAST(:schema AS regnamespace)
    UNION ALL
    SELECT 'function', p.proname, pg_get_functiondef(p.oid)
    FROM pg_proc AS p
    WHERE p.pronamespace = CAST(:schema AS regnamespace)
""")


def present(connection: Connection) -> Snapshot:
    """What the database has."""
    if connection.dialect.name == "sqlite":
        return _sqlite(connection.exec_driver_sql(_SQLITE))
    return _postgresql(connection)


def wanted(connection: Connection) -> Snapshot:
    """What it should have, as the present-state files make it; nothing stays of the making.

    PostgreSQL needs the right to create a schema for that.
    """
    if connection.dialect.name == "sqlite":
        with closing(sqlite3.connect(":memory:")) as scratch:
            scratch.executescript("".join(present_state("sqlite")))
            return _sqlite(scratch.execute(_SQLITE))
    with connection.begin_nested() as made_to_be_undone:
        connection.execute(text(f"CREATE SCHEMA {SCRATCH}"))
        connection.execute(text(f"SET LOCAL search_path TO {SCRATCH}"))
        run_present_state(connection)
        snapshot = _postgresql(connection)
        made_to_be_undone.rollback()
    return snapshot


def differences(connection: Connection) -> list[str]:
    """What is missing or other than it should be; a site's own objects are its own business."""
    found, should = present(connection), wanted(connection)
    problems = []
    for (kind, name), definition in sorted(should.items()):
        if (kind, name) not in found:
            problems.append(f"{kind} {name} is missing")
        elif found[kind, name] != definition:
            problems.append(f"{kind} {name} was changed")
    return problems


def _sqlite(rows: Iterable[Sequence[str]]) -> Snapshot:
    return {(kind, name): _squeezed(definition) for kind, name, definition in rows}


def _squeezed(definition: str) -> str:
    """Without comments and white space, which mean nothing."""
    words = " ".join(re.sub(r"--[^\n]*", "", definition).split())
    return re.sub(r" ?([(),]) ?", r"\1", words)


def _postgresql(connection: Connection) -> Snapshot:
    schema = connection.execute(text("SELECT CAST(current_schema() AS text)")).scalar_one()
    rows = connection.execute(_POSTGRESQL, {"schema": schema})
    qualifier = f"{schema}."
    return {(kind, name): definition.replace(qualifier, "") for kind, name, definition in rows}
