"""How the database of a consumer fails, and what the consumer logs then."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from tests.support.consumer.site import Site

LOCK_TIMEOUT = "500ms"
SHORT_WAITS = {
    "postgresql": f"options=-c%20lock_timeout%3D{LOCK_TIMEOUT}",
    "sqlite": "timeout=0.5",
}
"""The URL parameter that limits the wait for a lock or for another writer."""

WAITING = "nothing is acked"
"""Logged when the database cannot take a batch and the consumer waits for it."""

LOADER_SESSIONS = """
    FROM pg_stat_activity WHERE datname = current_database() AND usename LIKE '%loader%'
"""


def end_sessions(site: Site) -> int:
    """Terminate the loader's backends, and return their number once they are gone."""
    return int(site.scalar(f"SELECT count(pg_terminate_backend(pid, 30000)) {LOADER_SESSIONS}"))


def fill_up(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


@contextmanager
def another_writer(site: Site) -> Iterator[None]:
    """While the block lasts, nothing can be stored in the SQLite database; it can be read."""
    with closing(sqlite3.connect(site.config.with_name("sam.db"))) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.rollback()
