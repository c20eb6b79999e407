"""A TCP proxy before PostgreSQL that waits for a statement, in threads of its own.

    with StatementProxy(server.port, [b"COMMIT"], eats_answer=True) as proxy:
        ...  # the first COMMIT arrives, its answer does not

Statements pass in clear: the test servers speak no TLS.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

HOST = "127.0.0.1"
POLL_S = 0.05
CHUNK_BYTES = 65536


@dataclass
class StatementProxy:
    """Listens on a free port and speaks for the server on `server_port`.

    Once one connection has sent `words`, one statement after the other, this happens, and then
    never again; every other connection is as good as without a proxy.
    """

    server_port: int
    words: Sequence[bytes]
    act: Callable[[], None] = lambda: None
    """Called before the last of the statements passes."""
    eats_answer: bool = False
    """The last statement passes, and instead of its answer the connection ends."""

    def __enter__(self) -> StatementProxy:
        self.acted = threading.Event()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server((HOST, 0))
        self._listener.settimeout(POLL_S)
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def _start(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                self._serve(self._listener.accept()[0])

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection((HOST, self.server_port))
        except OSError:  # it is away: so are we
            client.close()
            return
        eat = threading.Event()
        due = list(self.words)
        self._start(partial(self._pump, client, server, partial(self._asks, due, eat)))
        self._start(partial(self._pump, server, client, lambda data: not eat.is_set()))

    def _pump(
        self, source: socket.socket, target: socket.socket, passes: Callable[[bytes], bool]
    ) -> None:
        source.settimeout(POLL_S)
        with suppress(OSError):  # the other pump, or one of the ends, was first
            while not self._stopping.is_set():
                with suppress(TimeoutError):
                    data = source.recv(CHUNK_BYTES)
                    if not data or not passes(data):
                        break
                    target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _asks(self, due: list[bytes], eat: threading.Event, data: bytes) -> bool:
        if self.acted.is_set() or due[0] not in data:
            return True
        due.pop(0)
        if not due:
            self.acted.set()
            self.act()
            if self.eats_answer:
                eat.set()
        return True
