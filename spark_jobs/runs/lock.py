"""One run of a report at a time: a second one waits, and then computes only what is left to do.

PostgreSQL holds the locks for a session that does nothing else; beside an SQLite file there is a
file for all reports. Both are free again when their holder dies, however it dies.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, TextClause, text

from sam_pipeline.schema.spool.disk import flock_at_once
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.runs.record import who
from sam_pipeline.sql.database.engine import name_of
from sam_pipeline.sql.errors import DATABASE_ERRORS, translated

# Each try is short, so that an interrupt is heard at once.
_PAUSE_S = 0.5

_KEY = "hashtextextended('sam report ' || :report, 0)"
_TRY = text(f"SELECT pg_try_advisory_lock({_KEY})")
# The time only if it is the same login's, or ours to see.
_HOLDER = text(f"""
    SELECT format('process %s of %s', a.pid, a.usename), a.backend_start
    FROM pg_locks AS l
    JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (CAST(l.classid AS bigint) << 32) | CAST(l.objid AS bigint) = {_KEY}
""")


@contextmanager
def run_lock(engine: Engine, reports: Iterable[str], tell: Callable[[str], None]) -> Iterator[None]:
    """Nobody else computes or seals these reports meanwhile.

    Whoever has to wait tells so once, with who is at it.

    Raises:
        DatabaseAway: it can't be asked.
    """
    lock = _file_lock if engine.dialect.name == "sqlite" else _session_lock
    # In order: of two that want the same ones, none waits for the other half-way.
    with lock(engine, sorted(set(reports)), tell):
        yield


@contextmanager
def _session_lock(
    engine: Engine, reports: Iterable[str], tell: Callable[[str], None]
) -> Iterator[None]:
    try:
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        # Never given to anybody else: its end is the end of the locks.
        connection.detach()
    except DATABASE_ERRORS as error:
        raise translated(error, name_of(engine)) from error
    with connection:
        for report in reports:
            _take(connection, report, tell)
        yield


def _take(connection: Connection, report: str, tell: Callable[[str], None]) -> None:
    def is_ours() -> bool:
        return bool(_first(connection, _TRY, report)[0])

    def told() -> None:
        holder, since = _first(connection, _HOLDER, report) or ("", None)
        when = f", since {format_time(since)}" if since else ""
        tell(_words(report, f"{holder}{when}"))

    _wait(is_ours, told)


@contextmanager
def _file_lock(
    engine: Engine, reports: Iterable[str], tell: Callable[[str], None]
) -> Iterator[None]:
    path = f"{engine.get_execution_options()['sam_file']}-report.lock"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _wait(
            lambda: flock_at_once(file),
            lambda: tell(_words(", ".join(reports), os.pread(file, 200, 0).decode())),
        )
        os.ftruncate(file, 0)
        now = format_time(datetime.now(UTC))
        os.pwrite(file, f"process {os.getpid()} of {who()}, since {now}".encode(), 0)
        yield
    finally:
        os.close(file)


def _wait(is_ours: Callable[[], bool], tell: Callable[[], None]) -> None:
    if is_ours():
        return
    tell()
    while not is_ours():
        time.sleep(_PAUSE_S)


def _first(connection: Connection, statement: TextClause, report: str) -> tuple[Any, ...]:
    """The first row of the answer, or nothing."""
    try:
        return tuple(connection.execute(statement, {"report": report}).first() or ())
    except DATABASE_ERRORS as error:
        raise translated(error, name_of(connection.engine)) from error


def _words(report: str, holder: str) -> str:
    at_it = f" ({holder})" if holder else ""
    return f"report {report}: another run is under way{at_it}: waiting until it has ended"
