"""One server of each kind for a whole run of pytest, shared by its workers.

The process that starts the workers owns the servers, so that none ends while another worker still
needs it. Workers find it by $TEST_SERVICES, the path of a socket, and get a server by its name. It
starts when the first of them asks. Without that variable a process starts its own.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from tests.services import ServiceMissing
from tests.services.activemq5 import running_activemq5
from tests.services.brokers import BROKERS
from tests.services.postgres import running_postgres

VARIABLE = "TEST_SERVICES"
POSTGRES = {
    "timezone": "Asia/Kolkata",
    # Tests that kill a server start their own.
    **dict.fromkeys(("fsync", "full_page_writes", "synchronous_commit"), "off"),
    "max_connections": "200",
}
"""Far from UTC and off by half an hour: reveals statements that depend on the server's zone."""
SERVERS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "postgres": lambda: running_postgres(POSTGRES),
    "activemq5": running_activemq5,
    **BROKERS,
}


class ServiceHost:
    """Starts servers on request, in threads, until it is stopped."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        directory = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="sam-host-"))
        self._started: dict[str, object] = {}
        self._locks = {name: threading.Lock() for name in SERVERS}
        self._listener = Listener(os.path.join(directory, "socket"), "AF_UNIX", backlog=16)
        threading.Thread(target=self._accept, daemon=True).start()
        os.environ[VARIABLE] = str(self._listener.address)

    def stop(self) -> None:
        del os.environ[VARIABLE]
        self._listener.close()
        self._stack.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection = self._listener.accept()
                threading.Thread(target=self._answer, args=[connection], daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        with connection:
            name = connection.recv()
            with self._locks[name]:
                if name not in self._started:
                    try:
                        self._started[name] = self._stack.enter_context(SERVERS[name]())
                    except Exception as error:
                        self._started[name] = error
            connection.send(self._started[name])


@contextmanager
def shared(name: str) -> Iterator[Any]:
    """The shared server: use databases and destinations of your own, and never stop it.

    Raises:
        ServiceMissing: it is not installed.
    """
    address = os.environ.get(VARIABLE)
    if not address:
        with SERVERS[name]() as server:
            yield server
        return
    with Client(address, "AF_UNIX") as connection:
        connection.send(name)
        answer = connection.recv()
    if isinstance(answer, ServiceMissing):
        raise ServiceMissing(answer.name, answer.how_to_get_it)
    if isinstance(answer, Exception):
        raise answer
    yield answer
