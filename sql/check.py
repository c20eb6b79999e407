"""Everything that is wrong with a database, at once."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, Engine, text

from sql.catalogue import class_views
from sql.engine import name_of, reading
from sql.errors import DATABASE_ERRORS, Kind, SchemaMismatch, kind_of, words_of
from sql.script import view_names
from sql.snapshot import differences
from sql.version import require_current

OLDEST_POSTGRESQL = 130000


def find_problems(engine: Engine) -> list[str]:
    """One line per problem; without the right schema nothing else is looked at.

    Raises:
        DatabaseAway: it can't be asked.
    """
    try:
        require_current(engine)
    except SchemaMismatch as error:
        return [str(error)]
    with reading(engine) as connection:
        problems = [*_of_objects(connection), *_of_settings(connection)]
    problems += _of_classes(engine)
    return [f"{name_of(engine)}: {problem}" for problem in problems]


def _of_objects(connection: Connection) -> list[str]:
    try:
        with connection.begin_nested():
            return differences(connection)
    except DATABASE_ERRORS as error:
        if kind_of(error) is Kind.RETRY:
            raise
        return [f"tables and views can't be compared (run as their owner): {words_of(error)}"]


def _of_classes(engine: Engine) -> Iterator[str]:
    """Of a site's own ones: what ails a built-in one is told with the other objects."""
    schemas_own = view_names(engine.dialect.name)
    for view in class_views(engine):
        if view.problem and view.name not in schemas_own:
            yield f"class {view.name}: {view.problem}"


def _of_settings(connection: Connection) -> Iterator[str]:
    if connection.dialect.name == "sqlite":
        yield from _of_sqlite(connection)
        return
    if int(_setting(connection, "server_version_num")) < OLDEST_POSTGRESQL:
        yield f"PostgreSQL {_setting(connection, 'server_version')}; wanted 13 or newer"
    for name, bad, why in (
        ("synchronous_commit", "off", "a crash can lose what was acked"),
        ("fsync", "off", "a crash can damage everything"),
    ):
        if _setting(connection, name) == bad:
            yield f"{name} is {bad}: {why}"
    for name, good in (("timezone", "UTC"), ("server_encoding", "UTF8")):
        if _setting(connection, name).upper() != good:
            yield f"{name} is {_setting(connection, name)}; wanted {good}"


def _of_sqlite(connection: Connection) -> Iterator[str]:
    mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
    if mode != "wal":
        yield f"journal_mode is {mode}; wanted wal: readers and the loader block each other"


def _setting(connection: Connection, name: str) -> str:
    return str(connection.execute(text("SELECT current_setting(:name)"), {"name": name}).scalar())
