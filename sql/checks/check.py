"""Everything that is wrong with a database, at once."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, Engine, text

from sam_pipeline.sql.checks.access import access_problems, closed_to_us
from sam_pipeline.sql.checks.difference import Problem, differences
from sam_pipeline.sql.database.engine import name_of, reading
from sam_pipeline.sql.database.roles import LOADER, SCHEMA, foreign_schema
from sam_pipeline.sql.database.script import view_names
from sam_pipeline.sql.database.version import require_current
from sam_pipeline.sql.errors import DATABASE_ERRORS, Kind, SchemaMismatch, kind_of, words_of
from sam_pipeline.sql.loading.catalogue import class_views

OLDEST_POSTGRESQL = 130000

KEPT_ASIDE = ("dead_letter", "loaded_batch")
"""What a loader writes beside the classes."""

_HARMFUL = {
    "synchronous_commit": ("on", "a crash can lose what was acked", ("off", "false", "no", "0")),
    "fsync": ("on", "a crash can damage everything", ("off",)),
    "session_replication_role": ("origin", "triggers may not fire", ("replica", "local")),
}
"""Settings that lose data: the good value, why, and the bad ones as people may write them."""

# Whose settings the loader's sessions have; a superuser is a member of everything.
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
        || 'RESET ' || split_part(setting, '=', 1) || ';' AS mend
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
    ORDER BY mend
""")
_SESSION = text("SELECT quote_ident(current_user), quote_ident(current_database())")
_SOURCE = text("SELECT source FROM pg_settings WHERE name = :name")
_OF_SESSIONS = ("database", "user", "database user")
"""Settings from here were found by the statement above."""
_OF_FILES = ("configuration file", "default")


def find_problems(engine: Engine) -> list[Problem]:
    """All problems; without the right schema nothing else is looked at.

    Raises:
        DatabaseAway: it can't be asked.
    """
    try:
        elsewhere = list(_elsewhere(engine))
        if elsewhere:
            return elsewhere
        require_current(engine)
    except SchemaMismatch as error:
        return [Problem(str(error))]
    with reading(engine) as connection:
        problems = [*_of_settings(connection)]
        if connection.dialect.name == "postgresql":
            problems += access_problems(connection)
        problems += _of_objects(connection)
    problems += _of_classes(engine)
    return [Problem(f"{name_of(engine)}: {one.words}", one.mend) for one in problems]


def loader_problems(engine: Engine) -> list[Problem]:
    """What keeps this user from loading, or makes it lose what it loaded.

    Raises:
        DatabaseAway: it can't be asked.
    """
    views = class_views(engine)
    problems = [Problem(f"class {one.name}: {one.problem}") for one in views if one.problem]
    if engine.dialect.name == "postgresql":
        wanted = [*KEPT_ASIDE, *(one.name for one in views if not one.problem)]
        with reading(engine) as connection:
            problems += _harmful(connection)
            for name in closed_to_us(connection, wanted):
                mend = f"GRANT INSERT ON {name} TO {LOADER};"
                problems.append(Problem(f"this user has no INSERT on {name}", mend))
    return [Problem(f"{name_of(engine)}: {one.words}", one.mend) for one in problems]


def _elsewhere(engine: Engine) -> Iterator[Problem]:
    if engine.dialect.name != "postgresql":
        return
    with reading(engine) as connection:
        foreign = foreign_schema(connection)
        if foreign is None:
            return
        user, database = connection.execute(_SESSION).one()
    yield Problem(
        f"{name_of(engine)}: the user's schema is {foreign}; wanted {SCHEMA}",
        f"ALTER ROLE {user} IN DATABASE {database} SET search_path = {SCHEMA};",
    )


def _of_objects(connection: Connection) -> list[Problem]:
    try:
        with connection.begin_nested():
            return differences(connection)
    except DATABASE_ERRORS as error:
        if kind_of(error) is Kind.RETRY:
            raise
        words = (
            f"tables, views and rights can't be compared (run as their owner): {words_of(error)}"
        )
        return [Problem(words)]


def _of_classes(engine: Engine) -> Iterator[Problem]:
    """Of a site's own ones: what ails a built-in one is told with the other objects."""
    schemas_own = view_names(engine.dialect.name)
    for view in class_views(engine):
        if view.problem and view.name not in schemas_own:
            yield Problem(f"class {view.name}: {view.problem}")


def _of_settings(connection: Connection) -> Iterator[Problem]:
    if connection.dialect.name == "sqlite":
        yield from _of_sqlite(connection)
        return
    if int(_setting(connection, "server_version_num")) < OLDEST_POSTGRESQL:
        yield Problem(f"PostgreSQL {_setting(connection, 'server_version')}; wanted 13 or newer")
    yield from _harmful(connection)
    for name, good in (("timezone", "UTC"), ("server_encoding", "UTF8")):
        if _setting(connection, name).upper() != good:
            yield Problem(f"{name} is {_setting(connection, name)}; wanted {good}")


def _harmful(connection: Connection) -> Iterator[Problem]:
    bound = [f"{name}={value}" for name, (_, _, values) in _HARMFUL.items() for value in values]
    for name, value, mend in connection.execute(_OF_LOADER, {"harmful": bound}):
        yield Problem(f"{name} is {value}: {_HARMFUL[name][1]}", mend)
    for name, (good, why, values) in _HARMFUL.items():
        value = _setting(connection, name)
        source = connection.execute(_SOURCE, {"name": name}).scalar_one()
        if value in values and source not in _OF_SESSIONS:
            mend = f"ALTER SYSTEM SET {name} = {good};\nSELECT pg_reload_conf();"
            # What stands on a command line no statement can change.
            yield Problem(f"{name} is {value}: {why}", mend if source in _OF_FILES else None)


def _of_sqlite(connection: Connection) -> Iterator[Problem]:
    mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
    if mode != "wal":
        words = f"journal_mode is {mode}; wanted wal: readers and the loader block each other"
        yield Problem(words, "PRAGMA journal_mode = WAL;")


def _setting(connection: Connection, name: str) -> str:
    return str(connection.execute(text("SELECT current_setting(:name)"), {"name": name}).scalar())
