"""Engines and transactions for SQLite and PostgreSQL, with timeouts and durable commits."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.sql.errors import (
    DATABASE_ERRORS,
    CannotCreate,
    DatabaseMissing,
    DatabaseRefused,
    away,
    is_collision,
    is_missing_table,
    message_of,
    translated,
)

BUSY_TIMEOUT_S = 30
"""How long to wait for another writer (SQLite) or a lock (PostgreSQL) before the database counts
as unavailable. The URL may set another time."""

KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_COUNT = 10, 5, 2
"""Probes of an idle connection to PostgreSQL."""
SILENCE_S = KEEPALIVE_IDLE_S + KEEPALIVE_INTERVAL_S * KEEPALIVE_COUNT
"""How long a connection may be silent, or leave sent data unacknowledged, before it counts as lost.
In the worst case one follows the other, and the next connection times out: less than 60 s."""

DIRECT = "sam.direct"
"""A setting of ours that a session has, unless a pooler drops all settings of a connection."""
ENCODING = "UTF8"

# The server probes its end too, or it would keep the locks of a client that has vanished for two
# hours. It gets no `tcp_user_timeout`, which would also end sessions of clients that read slowly.
_SETTINGS = {
    "timezone": "UTC",
    "lock_timeout": f"{BUSY_TIMEOUT_S}s",
    "tcp_keepalives_idle": KEEPALIVE_IDLE_S,
    "tcp_keepalives_interval": KEEPALIVE_INTERVAL_S,
    "tcp_keepalives_count": KEEPALIVE_COUNT,
    DIRECT: "on",
}

POSTGRESQL_ARGUMENTS: dict[str, Any] = {
    "connect_timeout": 10,
    "application_name": "sam",
    "keepalives_idle": KEEPALIVE_IDLE_S,
    "keepalives_interval": KEEPALIVE_INTERVAL_S,
    "keepalives_count": KEEPALIVE_COUNT,
    # Keepalives do not run while sent data is unacknowledged: the kernel would retry for 15 min.
    "tcp_user_timeout": SILENCE_S * 1000,
    "options": " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items()),
}

# The full name of the driver comes last.
POSTGRESQL = ("postgresql", "postgresql+psycopg2")
SQLITE = ("sqlite", "sqlite+pysqlite")

ROLE = "sam_role"
"""An execution option of engines: the role on PostgreSQL that the program needs."""

FOLLOWED = "sam_followed"
"""An execution option of engines: the `FollowedSchema` at which each transaction looks."""

SESSION_VERSION = "sam_schema_version"
"""In the info of a connection: the schema version of its session, if its engine follows it."""

# SQLite: a transaction that reads first and writes later fails at once, without waiting, if another
# one has written in between. So a writer locks the database from the start.
_WRITES = "sam_writes"
_INCARNATION = "sam_incarnation"
"""In the info of a connection to SQLite: device and number of the file that it has opened."""

SCHEMA = """
    SELECT a.version_num, c.oldest_program
    FROM alembic_version AS a
    LEFT JOIN compatibility AS c ON c.version = a.version_num
"""

ATTEMPTS = 4
"""The limit for a loader whose transaction conflicts with another one: the server may choose it as
the victim more than once, although rarely."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


def make_engine(url: str, *, create: bool = False, read_only: bool = False) -> Engine:
    """An engine for the database at `url`; an SQLite file must exist unless `create`.

    One that is `read_only` needs no permission to write the file, and writes nothing.

    Raises:
        ConfigError: not a URL of PostgreSQL or of an SQLite file.
        DatabaseMissing: the SQLite file does not exist.
        DatabaseRefused: no permission to write the file.
        CannotCreate: the directory of the file does not exist.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite_engine(parsed, create, read_only)
    arguments = postgresql_arguments(parsed)
    engine = create_engine(
        parsed,
        connect_args=arguments,
        pool_pre_ping=True,
        # False would make transactions read-write where the default of the server is read-only.
        execution_options={"postgresql_readonly": True} if read_only else {},
    )

    @event.listens_for(engine, "connect")
    def require_utf8(connection: Any, _: object) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != ENCODING:
            raise DatabaseMissing(
                f"{_shown(parsed)}: its encoding is {encoding}, not {ENCODING}, so it can't store"
                " every text: create another one (createdb --template template0 --encoding UTF8)"
            )

    driver: Any = engine.dialect.loaded_dbapi
    try:
        driver.extensions.make_dsn(**engine.dialect.create_connect_args(parsed)[1])
    except driver.ProgrammingError as error:  # it names the parameter
        raise ConfigError([f"{_shown(parsed)}: {str(error).strip()}"]) from None
    return engine


def postgresql_arguments(url: URL) -> dict[str, Any]:
    """Arguments of `connect`, without those that the URL sets, as `?options=-c lock_timeout=5s`."""
    query = url.normalized_query
    arguments = {name: value for name, value in POSTGRESQL_ARGUMENTS.items() if name not in query}
    if "options" in query:  # of two values for a setting the server uses the last
        arguments["options"] = " ".join([POSTGRESQL_ARGUMENTS["options"], *query["options"]])
    return arguments


def parse_url(url: str) -> URL:
    """The URL with the driver that we use; raises ConfigError like `make_engine`."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: a port that is not a number
        example = "sqlite:////var/lib/sam/sam.db"
        raise ConfigError([f"is not a URL (expected one like {example})"]) from None
    if url.count("@") > 1 and parsed.get_backend_name() == "postgresql":
        # The end of a password would be taken for a host, and errors would show it.
        raise ConfigError(["contains more than one @: write %40 for an @ in the password"])
    if parsed.drivername in POSTGRESQL:
        return parsed.set(drivername=POSTGRESQL[-1])
    if parsed.drivername in SQLITE and parsed.database not in (None, "", ":memory:"):
        _busy_timeout(parsed)  # raises if it is invalid
        return parsed
    raise ConfigError([f"must be postgresql+psycopg2://… or sqlite:///FILE, not {_shown(parsed)}"])


def name_of(engine: Engine) -> str:
    """The database's URL without the password."""
    url = engine.url
    if url.get_backend_name() == "sqlite":
        return f"sqlite:///{engine.get_execution_options()['sam_file']}"
    return _shown(url)


SchemaRow = tuple[str, str | None]
"""The version of a schema, and the oldest one whose programs work with it."""


@dataclass
class FollowedSchema:
    """The row of `SCHEMA` that the transactions of an engine have seen last.

    `accept` is called with a row that differs from it, or None without a schema; it raises if this
    program does not work with it.
    """

    accept: Callable[[SchemaRow | None], None]
    row: SchemaRow | None = None

    def suits(self, connection: Connection) -> bool:
        """Whether the session may be used: one from before an upgrade has outdated tables."""
        row = schema_row(connection)
        if row is None or row != self.row:
            self.accept(row)
            self.row = row
        version = row and row[0]
        return bool(connection.info.setdefault(SESSION_VERSION, version) == version)


def schema_row(connection: Connection) -> SchemaRow | None:
    """The row of the schema, if there is one."""
    try:
        row = connection.exec_driver_sql(SCHEMA).first()
    except DATABASE_ERRORS as error:
        if not is_missing_table(error):
            raise
        return None
    return None if row is None else (row[0], row[1])


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection in a transaction; errors of the driver are raised as `SqlError`."""
    try:
        with _transaction(engine) as connection:
            yield connection
    except DATABASE_ERRORS as error:
        role = engine.get_execution_options().get(ROLE, "")
        raise translated(error, name_of(engine), role) from error


@contextmanager
def reading_at_once(engine: Engine) -> Iterator[Connection]:
    """Like `reading`; all statements see the database as it was at the first of them."""
    # SQLite always does so.
    if engine.dialect.name == "postgresql":
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with reading(engine) as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Like `reading`, for a transaction that writes; it is committed on leaving the block."""
    with reading(engine.execution_options(**{_WRITES: True})) as connection:
        yield connection


@contextmanager
def write_transaction(engine: Engine) -> Iterator[Connection]:
    """Like `writing`, but errors of the driver are not translated."""
    with _transaction(engine.execution_options(**{_WRITES: True})) as connection:
        yield connection


def load_transaction(engine: Engine, action: Callable[[Connection], T]) -> T:
    """Run `action` in a transaction, again after a conflict, commit, and return its result.

    Raises:
        DatabaseAway: nothing was committed; try again later.
    """
    try:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with write_transaction(engine) as connection:
                    if connection.dialect.name == "postgresql":
                        # If a custom class defers a constraint to the commit, a violation would
                        # fail the whole batch, on every attempt.
                        connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
                        if attempt > 1:  # we have written nothing yet, so this can't deadlock
                            connection.execute(text("SELECT lock_names()"))
                    return action(connection)
            except DATABASE_ERRORS as error:
                if not is_collision(error) or attempt == ATTEMPTS:
                    raise
                logger.info("conflict with another loader, retrying: %s", message_of(error))
        raise AssertionError("the last attempt returns or raises")
    except DATABASE_ERRORS as error:
        # Reconnect the next time: a session stays with a server that has become read-only, or with
        # a file that was moved away, even if the URL leads to another one now.
        engine.dispose()
        raise away(error, name_of(engine)) from error


@contextmanager
def _transaction(engine: Engine) -> Iterator[Connection]:
    followed: FollowedSchema | None = engine.get_execution_options().get(FOLLOWED)
    while True:
        with engine.begin() as connection:
            if followed is None or followed.suits(connection):
                yield connection
                return
        engine.dispose()


def clock_offset(engine: Engine, clock: Callable[[], datetime]) -> timedelta:
    """What to add to our clock to get that of the server; SQLite has none of its own."""
    if engine.dialect.name != "postgresql":
        return timedelta()
    with reading(engine) as connection:
        before = clock()
        theirs: datetime = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
        after = clock()
    return theirs - (before + (after - before) / 2)


def _shown(url: URL) -> str:
    return url.set(query={}).render_as_string(hide_password=True)


def _sqlite_engine(url: URL, create: bool, read_only: bool) -> Engine:
    path = Path(str(url.database)).absolute()
    if not path.parent.is_dir() and create:
        raise CannotCreate(f"{path}: the directory {path.parent} does not exist")
    if not path.exists() and not create:
        raise DatabaseMissing(f"{path}: no such database; `sam-db upgrade` creates it")
    if path.is_dir():
        raise DatabaseMissing(f"{path}: is a directory, not a database")
    written = path if path.exists() else path.parent
    needed, action = (os.R_OK, "read") if read_only else (os.R_OK | os.W_OK, "write")
    if not os.access(written, needed):
        raise DatabaseRefused(f"{path}: no permission to {action} {written}")
    # mode=rw: if the file disappears later, SQLite must not create an empty one in its place.
    mode = {"mode": "rwc" if create else "rw"}
    if read_only and not all(os.access(place, os.W_OK) for place in (path, path.parent)):
        # Without a log nobody writes; SQLite would make one, and leave it there.
        has_log = path.with_name(f"{path.name}-wal").exists()
        mode = {"mode": "ro"} if has_log else {"mode": "ro", "immutable": "1"}
    file_url = url.set(database=f"file:{quote(str(path))}", query={**mode, "uri": "true"})
    engine = create_engine(
        file_url,
        connect_args={"timeout": _busy_timeout(url)},
        execution_options={"sam_file": str(path)},
    )

    def incarnation() -> tuple[int, int] | None:
        """Device and number of the file that has the name now; None if it was deleted."""
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
        # The driver begins transactions late and not for DDL, so `begin` below does it.
        connection.isolation_level = None
        if read_only:
            connection.execute("PRAGMA query_only = ON")
        else:
            # WAL: readers and the one writer do not wait for each other. FULL: commits survive a
            # power failure; otherwise an acked row could be lost.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
        record.info[_INCARNATION] = incarnation()

    @event.listens_for(engine, "checkout")
    def reopen(_: object, record: ConnectionPoolEntry, __: object) -> None:
        if record.info[_INCARNATION] != incarnation():
            raise DisconnectionError  # the pool opens the file that is there now

    @event.listens_for(engine, "commit")
    def require_same_file(connection: Connection) -> None:
        # SQLite would go on in a file without a name, and lose it when the process ends.
        if connection.info[_INCARNATION] != incarnation():
            error = sqlite3.OperationalError(f"{path} was replaced or deleted while it was open")
            error.sqlite_errorname = "SQLITE_CANTOPEN"
            raise error

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _busy_timeout(url: URL) -> float:
    """`?timeout=5` of the URL, or the default, in seconds."""
    timeout = url.query.get("timeout", str(BUSY_TIMEOUT_S))
    try:
        return float(str(timeout))
    except ValueError:
        raise ConfigError([f"timeout={timeout} is not a number of seconds"]) from None
