"""Keeps a second process waiting while one does the same work on a database.

On PostgreSQL a session of its own holds the locks; for SQLite, one lock file next to the database
serves all of them. Both are released when their process ends, however it ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
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

Waiting = Callable[[str, str], None]
"""Called once with the label of a lock that another process holds, and ` (HOLDER)` if known."""


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
        with _file_lock(engine, ", ".join(locks), file, waiting):
            yield
    else:
        with _session_lock(engine, locks, program, waiting):
            yield


@contextmanager
def _session_lock(
    engine: Engine, locks: Mapping[str, str], program: str, waiting: Waiting
) -> Iterator[None]:
    def holder(name: str) -> str:
        other = next(iter(session.others(name)), None)
        if other is None or other.since is None:
            return ""
        since = format_time(other.since)
        return f"process {other.process} of {other.login}, since {since}"

    with closing(LockSession(engine, f"{program} {os.getpid()}")) as session:
        for label, name in locks.items():
            _wait(label, partial(session.try_lock, name), partial(holder, name), waiting)
        yield


@contextmanager
def _file_lock(engine: Engine, label: str, file_end: str, waiting: Waiting) -> Iterator[None]:
    path = f"{engine.get_execution_options()['sam_file']}-{file_end}"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _wait(
            label,
            lambda: flock_at_once(file),
            lambda: os.pread(file, 200, 0).decode(),
            waiting,
        )
        os.ftruncate(file, 0)
        now = format_time(datetime.now(UTC))
        os.pwrite(file, f"process {os.getpid()} of {login_name()}, since {now}".encode(), 0)
        yield
    finally:
        os.close(file)


def _wait(
    label: str, lock: Callable[[], bool], holder: Callable[[], str], waiting: Waiting
) -> None:
    if lock():
        return
    by = holder()
    waiting(label, f" ({by})" if by else "")
    while not lock():
        time.sleep(_PAUSE_S)
