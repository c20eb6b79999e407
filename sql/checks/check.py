"""All problems of a database at once."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, Engine, text

from sam_pipeline.sql.checks.access import access_problems
from sam_pipeline.sql.checks.ownership import ownership_problems
from sam_pipeline.sql.checks.problem import REPAIR_COMMAND, Problem
from sam_pipeline.sql.checks.schema_objects import differences, present_objects, wanted_objects
from sam_pipeline.sql.checks.settings import harmful_settings, setting_problems
from sam_pipeline.sql.database.engine import name_of, reading
from sam_pipeline.sql.database.roles import LOADER, SCHEMA, foreign_schema
from sam_pipeline.sql.database.script import view_names
from sam_pipeline.sql.database.version import require_compatible
from sam_pipeline.sql.errors import DATABASE_ERRORS, Kind, kind_of, message_of
from sam_pipeline.sql.loading.catalogue import class_views

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
            return prefixed(name_of(engine), problems)
    schema = require_compatible(engine)
    with reading(engine) as connection:
        problems += setting_problems(connection)
        if schema.is_wanted:
            if is_postgresql:
                problems += access_problems(connection)
            try:
                with connection.begin_nested():
                    problems += schema_problems(connection)
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
    return prefixed(name_of(engine), problems)


def schema_problems(connection: Connection) -> list[Problem]:
    """Where the objects of the schema differ from those of the `.sql` files."""
    ours = wanted_objects(connection)
    problems: list[Problem] = []
    for difference in differences(present_objects(connection), ours):
        if difference.kind in IN_TABLES and difference.wanted:
            problems.append(Problem(f"{difference} (expected: {difference.wanted})"))
        else:
            is_repairable = difference.kind not in ("table", *IN_TABLES)
            problems.append(Problem(str(difference), REPAIR_COMMAND if is_repairable else None))
    if connection.dialect.name == "postgresql":
        problems += ownership_problems(connection, ours)
    return problems


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
    return prefixed(name_of(engine), problems)


def prefixed(database: str, problems: Iterable[Problem]) -> list[Problem]:
    return [Problem(f"{database}: {text}", repair) for text, repair in problems]
