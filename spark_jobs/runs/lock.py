"""One run of a report at a time: a second one waits, and then computes only what is left to do.

On PostgreSQL a session of its own holds the locks; for SQLite, one lock file next to the database
serves all reports. Both are released when their process ends, however it ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial

from sqlalchemy import Engine

from sam_pipeline.schema.login import login_name
from sam_pipeline.schema.spool.disk import flock_at_once
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.session_lock import LockSession

# Each attempt is short, so that an interrupt takes effect at once.
_PAUSE_S = 0.5


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
    def holder(name: str) -> str:
        other = next(iter(session.others(name)), None)
        if other is None or other.since is None:
            return ""
        since = format_time(other.since)
        return f"process {other.process} of {other.login}, since {since}"

    with closing(LockSession(engine, f"sam-report run {os.getpid()}")) as session:
        for report in reports:
            name = f"sam report {report}"
            _wait(report, partial(session.try_lock, name), partial(holder, name), warn)
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
        os.pwrite(file, f"process {os.getpid()} of {login_name()}, since {now}".encode(), 0)
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
