"""The `.sql` files of this package, and how each dialect runs one inside a transaction."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from sqlalchemy import Connection

HERE = Path(__file__).parents[1]

_CREATE = re.compile(r"^(?=CREATE )", re.MULTILINE)
_REPLACEABLE = re.compile(r"CREATE (VIEW|FUNCTION|TRIGGER) (\w+)(?:.*? ON (\w+))?", re.DOTALL)


def run_present_state(connection: Connection) -> None:
    """Create all objects as they are now, without the steps that led there."""
    for script in present_state(connection.dialect.name):
        run_script(connection, script)


def present_state(dialect: str) -> list[str]:
    """The scripts of all objects as they are now, in order."""
    files = sorted((HERE / dialect).glob("*.sql"))
    return [file.read_text(encoding="utf-8") for file in files]


@cache
def creating(dialect: str) -> Mapping[tuple[str, str], str]:
    """What creates each view, function and trigger, with its comment, by kind and name.

    Names are spelled as that database does; a function's is without its arguments.
    """
    statements: dict[tuple[str, str], str] = {}
    for part in _CREATE.split("\n".join(present_state(dialect))):
        created = _REPLACEABLE.match(part)
        if created:
            kind, name, on = created.groups()
            if dialect == "postgresql":
                name = (f"{name} on {on}" if kind == "TRIGGER" else name).lower()
            statements[kind.lower(), name] = part
    return statements


def view_names(dialect: str) -> frozenset[str]:
    """All views of the schema, as that database spells their names."""
    return frozenset(name for kind, name in creating(dialect) if kind == "view")


def run_script(connection: Connection, script: str) -> None:
    """Run all statements of a script; the caller's transaction holds them together."""
    # PostgreSQL takes a whole script; Python's SQLite takes one statement at a time, and its
    # executescript would commit first.
    whole = connection.dialect.name == "postgresql"
    for statement in [script] if whole else statements(script):
        # Without parameters a % in the text is a %.
        connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def statements(script: str) -> Iterator[str]:
    """The statements of an SQLite script; semicolons inside a trigger or a text do not end one."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement.strip()
            statement = ""
    if any(not line.startswith("--") for line in statement.split("\n") if line.strip()):
        yield statement.strip()
