"""One run of a report at a time: a second one waits, and then computes only what is left to do.

On PostgreSQL a session of its own holds the locks; for SQLite, one lock file next to the database
serves all reports. Both are released when their process ends, however it ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import Engine, TextClause, text

from sam_pipeline.schema.spool.disk import flock_at_once
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.runs.record import who
from sam_pipeline.sql.database.engine import name_of
from sam_pipeline.sql.errors import DATABASE_ERRORS, translated

# Each attempt is short, so that an interrupt takes effect at once.
_PAUSE_S = 0.5

_KEY = "hashtextextended('sam report ' || :report, 0)"
_TRY = text(f"SELECT pg_try_advisory_lock({_KEY})")
# The time is null unless the session has the same login, or this one may see all sessions.
_HOLDER = text(f"""
    SELECT format('process %s of %s', a.pid, a.usename), a.backend_start
    FROM pg_locks AS l
    JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (CAST(l.classid AS bigint) << 32) | CAST(l.objid AS bigint) = {_KEY}
""")


@contextmanager
def run_lock(engine: Engine, reports: Iterable[str], warn: Callable[[str], None]) -> Iterator[None]:
    """Keep other processes from computing or sealing these reports during the block.

    If it has to wait, it warns once, with the holder of the lock.

    Raises:
        DatabaseAway: the database cannot be reached.
    """
    lock = _file_lock if engine.dialect.name == "sqlite" else _session_lock
    # In a fixed order, so that two processes cannot wait for each other.
    with lock(engine, sorted(set(reports)), warn):
        yield


@contextmanager
def _session_lock(
    engine: Engine, reports: Iterable[str], warn: Callable[[str], None]
) -> Iterator[None]:
    try:
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        # Not returned to the pool: closing the connection releases the locks.
        connection.detach()
    except DATABASE_ERRORS as error:
        raise translated(error, name_of(engine)) from error

    def first(statement: TextClause, report: str) -> tuple[Any, ...]:
        try:
            return tuple(connection.execute(statement, {"report": report}).first() or ())
        except DATABASE_ERRORS as error:
            raise translated(error, name_of(engine)) from error

    def is_ours(report: str) -> bool:
        return bool(first(_TRY, report)[0])

    def holder(report: str) -> str:
        process, since = first(_HOLDER, report) or ("", None)
        return f"{process}, since {format_time(since)}" if since else process

    with connection:
        for report in reports:
            _wait(report, partial(is_ours, report), partial(holder, report), warn)
        yield


@contextmanager
def _file_lock(
    engine: Engine, reports: Iterable[str], warn: Callable[[str], None]
) -> Iterator[None]:
    path = f"{engine.get_execution_options()['sam_file']}-report.lock"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _wait(
            ", ".join(reports),
            lambda: flock_at_once(file),
            lambda: os.pread(file, 200, 0).decode(),
            warn,
        )
        os.ftruncate(file, 0)
        now = format_time(datetime.now(UTC))
        os.pwrite(file, f"process {os.getpid()} of {who()}, since {now}".encode(), 0)
        yield
    finally:
        os.close(file)


def _wait(
    report: str, lock: Callable[[], bool], holder: Callable[[], str], warn: Callable[[str], None]
) -> None:
    """Try to lock until it succeeds; warn once, with the holder if it is known."""
    if lock():
        return
    by = holder()
    known = f" ({by})" if by else ""
    warn(f"report {report}: another run is under way{known}: waiting for it to end")
    while not lock():
        time.sleep(_PAUSE_S)
