"""Locks that make a second process wait, or refuse, while one does the same work on a database.

On PostgreSQL they are advisory locks, held by a connection of their own until it ends. They belong
to a transaction that stays open, so a pooler in transaction mode does not give its session to
another client. Between statements it has no snapshot, so it does not hold back vacuum. For SQLite,
one lock file next to the database serves all of them. Both are released when their process ends,
however it ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import Engine, Row, text

from sam_pipeline.schema.spool.disk import flock_at_once
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import name_of
from sam_pipeline.sql.database.operations import login_name
from sam_pipeline.sql.errors import DATABASE_ERRORS, DatabaseAway, translated

# Each attempt is short, so that an interrupt takes effect at once.
_PAUSE_S = 0.5

Waiting = Callable[[str, str], None]
"""Called once with the label of a lock that another process holds, and ` (HOLDER)` if known."""

_OPEN = text("""
    SELECT set_config('application_name', :application, true),
        (SELECT count(set_config(name, '0', true)) FROM pg_settings
         WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout'))
""")
_TRY = {
    False: text("SELECT pg_try_advisory_xact_lock(hashtextextended(:name, 0))"),
    True: text("SELECT pg_try_advisory_xact_lock_shared(hashtextextended(:name, 0))"),
}
# Includes sessions that wait for an exclusive lock, since they keep others from a shared one.
# Address and time are null unless the session has the same login, or this one may see all.
_OTHERS = text("""
    SELECT l.pid, a.usename, a.application_name, host(a.client_addr), a.backend_start,
        has_table_privilege(
            a.usesysid, CAST(to_regclass('public.metricoutput') AS oid), 'INSERT'
        ) IS TRUE
    FROM pg_locks AS l
    LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.objsubid = 1
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (CAST(l.classid AS bigint) << 32) | CAST(l.objid AS bigint) = hashtextextended(:name, 0)
        AND l.pid IS DISTINCT FROM pg_backend_pid()
        AND (l.mode = 'ExclusiveLock' OR NOT :shared)
    ORDER BY l.granted DESC, l.pid
""")


@contextmanager
def one_at_a_time(
    engine: Engine, locks: Mapping[str, str], program: str, file: str, waiting: Waiting
) -> Iterator[None]:
    """Hold the locks during the block.

    Args:
        locks: names of advisory locks by label, in an order that all processes share, so that two
            of them cannot wait for each other.
        program: how others see the session that holds them.
        file: the end of the name of the lock file, for SQLite.
    Raises:
        DatabaseAway: the database cannot be reached.
    """
    if engine.dialect.name == "sqlite":
        path = f"{engine.get_execution_options()['sam_file']}-{file}"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _wait(
                ", ".join(locks),
                lambda: flock_at_once(lock),
                lambda: os.pread(lock, 200, 0).decode(),
                waiting,
            )
            os.ftruncate(lock, 0)
            now = format_time(datetime.now(UTC))
            os.pwrite(lock, f"process {os.getpid()} of {login_name()}, since {now}".encode(), 0)
            yield
        finally:
            os.close(lock)
        return

    def holder(name: str) -> str:
        other = next(iter(session.others(name)), None)
        if other is None or other.since is None:
            return ""
        return f"process {other.process} of {other.login}, since {format_time(other.since)}"

    with closing(LockSession(engine, f"{program} {os.getpid()}")) as session:
        for label, name in locks.items():
            _wait(label, partial(session.try_lock, name), partial(holder, name), waiting)
        yield


def _wait(
    label: str, lock: Callable[[], bool], holder: Callable[[], str], waiting: Waiting
) -> None:
    if lock():
        return
    by = holder()
    waiting(label, f" ({by})" if by else "")
    while not lock():
        time.sleep(_PAUSE_S)


@dataclass(frozen=True)
class LockHolder:
    """Another session that holds a lock; the address and the time may be hidden from us."""

    process: int | None
    login: str | None
    application: str | None
    address: str | None
    since: datetime | None
    may_load: bool
    """Whether its login may insert results."""


class LockSession:
    """A connection of its own; `application` is the name that others see in pg_stat_activity.

    If the connection fails, the locks are lost, and the methods raise DatabaseAway.
    """

    def __init__(self, engine: Engine, application: str) -> None:
        self._engine = engine
        with self._translated():
            # Otherwise the transaction could keep one snapshot as long as it lasts.
            connection = engine.connect().execution_options(isolation_level="READ COMMITTED")
            # Not returned to the pool: closing the connection releases the locks.
            connection.detach()
        self._connection = connection
        try:
            self._first(_OPEN, {"application": application})
        except BaseException:
            self.close()
            raise

    def try_lock(self, name: str, shared: bool = False) -> bool:
        """Whether this session holds the lock, now or already."""
        [is_ours] = self._first(_TRY[shared], {"name": name})
        return bool(is_ours)

    def others(self, name: str, shared: bool = False) -> list[LockHolder]:
        """The other sessions that keep this one from the lock."""
        with self._translated():
            rows = self._connection.execute(_OTHERS, {"name": name, "shared": shared}).all()
        return [LockHolder(*row) for row in rows]

    def is_usable(self) -> bool:
        """Whether it is connected to a server that accepts writes, so that its locks count."""
        try:
            [in_recovery] = self._first(text("SELECT pg_is_in_recovery()"), {})
        except DatabaseAway:
            return False
        return not in_recovery

    def close(self) -> None:
        """End the session without waiting for the server, which then releases its locks."""
        self._connection.close()

    def _first(self, statement: Any, parameters: dict[str, str]) -> Row[Any]:
        with self._translated():
            return self._connection.execute(statement, parameters).one()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DATABASE_ERRORS as error:
            raise translated(error, name_of(self._engine)) from error
