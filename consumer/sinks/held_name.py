"""Holds the name of a consumer in the database, so that only one host uses it at a time.

The lock of `process.name_lock` covers one host. ActiveMQ refuses a name that is in use, but Artemis
and RabbitMQ would silently share the messages between two hosts.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Sequence

from sqlalchemy import Engine

from sam_pipeline.consumer.errors import SourceTaken
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.sql.database.session_lock import LockHolder, LockSession
from sam_pipeline.sql.errors import DatabaseAway

MAX_APPLICATION = 63
"""PostgreSQL cuts an application_name there (bytes; it replaces other characters than ASCII)."""

POLL_S = 0.1
GRACE_S = 2.0
"""How long an ended process may seem to hold the name, until the server has ended its session."""

logger = logging.getLogger(__name__)


class HeldName:
    """A name that this process holds while it loads into the database.

    Processes for which it is `shared` hold it together. SQLite is used by one host only, whose name
    lock suffices.
    """

    def __init__(
        self, engine: Engine, name: str, shared: bool, host: str = socket.gethostname()
    ) -> None:
        self._engine = engine
        self._name = name
        self._shared = shared
        self._application = application_name(name, host, os.getpid())
        self._session: LockSession | None = None
        self._reported = ""

    def hold(self) -> None:
        """Take the name, or make sure that it is still held, with a new connection if necessary.

        Raises:
            SourceTaken: another process holds it.
            DatabaseAway: unknown; the next call connects again.
        """
        if self._engine.dialect.name == "sqlite":
            return
        try:
            self._hold()
        except DatabaseAway:
            self.close()
            raise

    def close(self) -> None:
        """Let others have the name."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _hold(self) -> None:
        if self._session is not None and not self._session.is_usable():
            self.close()
        if self._session is None:
            self._session = LockSession(self._engine, self._application)
        lock = f"sam consumer {self._name}"
        grace = Deadline.after(GRACE_S)
        while not self._session.try_lock(lock, self._shared):
            others = self._session.others(lock, self._shared)
            loaders = [other for other in others if other.may_load]
            if not loaders:
                self._warn_of(others)
                return
            if grace.expired:
                self._require_ours(loaders)
                return
            time.sleep(POLL_S)
        self._reported = ""

    def _require_ours(self, holders: Sequence[LockHolder]) -> None:
        """Raise SourceTaken unless each of them is an earlier connection of this process.

        If the network failed, the server notices only after a minute that such a one is dead.
        """
        for holder in holders:
            if holder.application != self._application:
                problem = f"another sam-consume named {self._name!r} uses this database"
                advice = "stop it, or configure another name"
                raise SourceTaken(f"{problem} ({_described(holder)}): {advice}")

    def _warn_of(self, strangers: Sequence[LockHolder]) -> None:
        text = ", ".join(map(_described, strangers))
        if text and text != self._reported:
            logger.warning(
                "continuing, but the name %s can't be held in the database: a login that may not"
                " load holds its lock (%s)",
                self._name,
                text,
            )
            self._reported = text


def application_name(name: str, host: str, pid: int) -> str:
    """The application_name of the session; if it is too long, the name is cut."""
    start, end = f"sam-consume {name}", f"@{host} {pid}"
    return (start[: max(0, MAX_APPLICATION - len(end))] + end)[-MAX_APPLICATION:]


def _described(holder: LockHolder) -> str:
    parts = (holder.application, holder.address, holder.login and f"login {holder.login}")
    return ", ".join(filter(None, parts)) or f"process {holder.process} of the server"
