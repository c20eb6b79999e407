"""The objects of the schema with their definitions: those that exist, and those that should."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text

from sam_pipeline.sql.database.roles import LOADER, ROLES, SCHEMA, grant
from sam_pipeline.sql.database.script import present_state, run_script
from sam_pipeline.sql.database.version import MIGRATIONS

SCRATCH = "sam_scratch"
"""A temporary schema, created and rolled back within one transaction."""

OUR_GRANTEES = (*ROLES[1:], "PUBLIC")
"""Grantees whose rights on our objects we decide; the owner needs no grants."""


class SchemaObject(NamedTuple):
    """An object, a column or a grant; `parent` is the table, view or function it belongs to."""

    definition: str
    parent: str


Key = tuple[str, str]
"""Kind and name: ("view", "metricoutput")."""

Objects = Mapping[Key, SchemaObject]
"""In the order of creation."""


class Difference(NamedTuple):
    kind: str
    name: str
    state: str
    """`missing`, `changed` or `unexpected`."""
    wanted: str = ""
    """The definition that it should have; "" if it is unexpected."""

    def __str__(self) -> str:
        if self.state == "unexpected":
            return f"unexpected {self.kind} {self.name}"
        problem = "is missing" if self.state == "missing" else "was changed"
        return f"{self.kind} {self.name} {problem}"


_SQLITE = text("""
    SELECT type AS kind, name, sql AS definition, tbl_name AS parent FROM sqlite_schema
    WHERE sql IS NOT NULL
    ORDER BY rowid
""")

# In CREATE TABLE statements of SQLite.
_TOKEN = re.compile(r"""'[^']*'|"[^"]*"|[(),]|[^'"(),]+""")
_CONSTRAINT = re.compile(r"(CONSTRAINT|PRIMARY|UNIQUE|CHECK|FOREIGN)\b", re.IGNORECASE)

_POSTGRESQL = text(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def present_objects(connection: Connection) -> Objects:
    """The objects of the current schema."""
    if connection.dialect.name == "sqlite":
        objects: dict[Key, SchemaObject] = {}
        for kind, name, definition, parent in connection.execute(_SQLITE):
            # Comments and white space make no difference.
            line = " ".join(re.sub(r"--[^\n]*", "", definition).split())
            objects[kind, name] = SchemaObject(re.sub(r" ?([(),]) ?", r"\1", line), parent)
        return objects
    schema = connection.execute(text("SELECT CAST(current_schema() AS text)")).scalar_one()
    return {
        (kind, name): SchemaObject(definition.replace(f"{SCRATCH}.", f"{SCHEMA}."), parent)
        for kind, name, parent, definition in connection.execute(_POSTGRESQL, {"schema": schema})
    }


def wanted_objects(connection: Connection) -> Objects:
    """The objects that the `.sql` files create, from a copy of the schema that is rolled back.

    On PostgreSQL the user needs the right to create a schema.
    """
    if connection.dialect.name == "sqlite":
        memory = create_engine("sqlite://")
        with memory.connect() as scratch:
            _create_all(scratch)
            objects = present_objects(scratch)
        memory.dispose()
        return objects
    with connection.begin_nested() as savepoint:
        connection.execute(text(f"CREATE SCHEMA {SCRATCH}"))
        connection.execute(text(f"SET LOCAL search_path TO {SCRATCH}"))
        # A function may refer to its final schema, where an object may be missing.
        connection.execute(text("SET LOCAL check_function_bodies = off"))
        _create_all(connection)
        grant(connection)
        objects = present_objects(connection)
        savepoint.rollback()
    return objects


def differences(existing: Objects, wanted: Objects) -> Iterator[Difference]:
    """The differences in the order of creation.

    Objects that a site has added, and grants to its own roles, are not differences; on SQLite a
    column that was added to one of our tables is.
    """
    # 30_grants.sql grants nothing while a role is missing.
    is_granted = any(name.endswith(f" TO {LOADER}") for _, name in wanted)
    for (kind, name), ours in wanted.items():
        if kind == "column" and ("table", ours.parent) not in existing:
            continue  # the table is reported
        if kind == "grant" and not is_granted:
            continue
        if (kind, name) not in existing:
            yield Difference(kind, name, "missing", ours.definition)
        elif (definition := existing[kind, name].definition) == ours.definition:
            continue
        elif kind == "table" and definition.startswith("CREATE"):
            yield from table_differences(name, definition, ours.definition)
        else:
            yield Difference(kind, name, "changed", ours.definition)
    our_names = {ours.parent for ours in wanted.values()}
    for (kind, name), other in existing.items():
        is_ours = kind == "grant" and other.parent in our_names and grantee_of(name) in OUR_GRANTEES
        if is_granted and is_ours and (kind, name) not in wanted:
            yield Difference(kind, name, "unexpected")


def table_differences(table: str, existing: str, wanted: str) -> list[Difference]:
    """The columns and constraints that differ between two CREATE TABLE statements of SQLite.

    The table itself differs if its options do, or if only the order of the columns does.
    """
    before, ours = _table_parts(existing), _table_parts(wanted)
    differences: list[Difference] = []
    for kind, part in {**ours, **before}:
        name = {"column": f"{table}.{part}", "constraint": f"{part} on {table}"}.get(kind, table)
        definition = ours.get((kind, part), "")
        if (kind, part) not in before:
            differences.append(Difference(kind, name, "missing", definition))
        elif (kind, part) not in ours:
            differences.append(Difference(kind, name, "unexpected"))
        elif before[kind, part] != definition:
            differences.append(Difference(kind, name, "changed", definition))
    return differences or [Difference("table", table, "changed", wanted)]


def _table_parts(definition: str) -> dict[Key, str]:
    """A CREATE TABLE statement: columns by name, constraints by their text, the rest by ""."""
    rest, items, depth = "", [""], 0
    for token in _TOKEN.findall(definition):
        depth -= token == ")"
        if depth == 0:
            rest += token
        elif depth == 1 and token == ",":
            items.append("")
        else:
            items[-1] += token
        depth += token == "("
    parts: dict[Key, str] = {("table", ""): rest}
    for item in items:
        name, _, column = item.partition(" ")
        if _CONSTRAINT.match(item):
            parts["constraint", item] = item
        else:
            parts["column", name.strip('"`[]')] = column
    return parts


def grantee_of(grant: str) -> str:
    return grant.rpartition(" TO ")[2]


def _create_all(connection: Connection) -> None:
    for script in present_state(connection.dialect.name):
        run_script(connection, script)
    MigrationContext.configure(connection).stamp(ScriptDirectory(str(MIGRATIONS)), "head")
