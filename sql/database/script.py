"""Reads the `.sql` files of this package, and runs them inside a transaction."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from functools import cache
from operator import attrgetter
from pathlib import Path
from textwrap import indent

from sqlalchemy import Connection

HERE = Path(__file__).parents[1]

_CREATE = re.compile(r"^(?=CREATE )", re.MULTILINE)
_COMMENT = re.compile(r"^COMMENT ON .*?;$", re.MULTILINE | re.DOTALL)
_REPLACEABLE = re.compile(r"CREATE (VIEW|FUNCTION|TRIGGER) (\w+)(?:.*? ON (\w+))?", re.DOTALL)


def present_state(dialect: str, room: Path = HERE) -> list[str]:
    """The scripts that create all objects of the newest version, in order.

    Those in `both` are for both dialects; SQLite has no COMMENT statement.
    """
    files = [*(room / dialect).glob("*.sql"), *(room / "both").glob("*.sql")]
    scripts = [file.read_text(encoding="utf-8") for file in sorted(files, key=attrgetter("name"))]
    if dialect == "postgresql":
        return scripts
    return [_COMMENT.sub(lambda found: indent(found[0], "-- "), script) for script in scripts]


@cache
def create_statements(dialect: str) -> Mapping[tuple[str, str], str]:
    """The statements that create each view, function and trigger, by kind and name.

    Names are spelled as in the catalogue of the database; functions have no arguments here.
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
    """The names of all views, spelled as in the catalogue of the database."""
    return frozenset(name for kind, name in create_statements(dialect) if kind == "view")


def run_script(connection: Connection, script: str) -> None:
    """Run all statements of a script in the transaction of the caller."""
    # PostgreSQL accepts a whole script. SQLite's `execute` accepts one statement at a time, and its
    # `executescript` commits first.
    whole = connection.dialect.name == "postgresql"
    for statement in [script] if whole else statements(script):
        # Without parameters a % needs no escape.
        connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def statements(script: str) -> Iterator[str]:
    """The statements of an SQLite script, even if triggers and strings contain semicolons."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement.strip()
            statement = ""
    if any(not line.startswith("--") for line in statement.split("\n") if line.strip()):
        yield statement.strip()
