"""Server settings that could lose data, wherever they are set."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, text

from sam_pipeline.sql.checks.problem import Problem
from sam_pipeline.sql.database.engine import DIRECT

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
_OF_SESSIONS = ("database", "user", "database user")
"""Sources of settings that _OF_LOADER returns."""
_OF_FILES = ("configuration file", "default")


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
        if value in values and source not in _OF_SESSIONS:
            statement = f"ALTER SYSTEM SET {name} = {good}; SELECT pg_reload_conf();"
            # No statement overrides the command line of the server.
            yield Problem(f"{name} is {value}: {why}", statement if source in _OF_FILES else None)


def _setting(connection: Connection, name: str) -> str:
    return str(connection.execute(text("SELECT current_setting(:name)"), {"name": name}).scalar())
