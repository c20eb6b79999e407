"""A TCP proxy in front of PostgreSQL that acts on a given statement, in its own threads.

    with StatementProxy(server.port, [b"COMMIT"], eats_answer=True) as proxy:
        ...  # the first COMMIT arrives, its answer does not

It reads statements in plain text: the test servers do not use TLS.
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
    """Listens on a free port and forwards to the server on `server_port`.

    It acts once: on the first connection that has sent all `statements` in this order. Every other
    connection is forwarded unchanged.
    """

    server_port: int
    statements: Sequence[bytes]
    """Parts of the statements to wait for."""
    act: Callable[[], None] = lambda: None
    """Called before the last statement is forwarded."""
    eats_answer: bool = False
    """Forward the last statement and close the connection instead of forwarding its answer."""

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
        except OSError:  # the server is down, so the proxy closes too
            client.close()
            return
        discard = threading.Event()
        expected = list(self.statements)
        self._start(
            partial(self._pump, client, server, partial(self._forward_statement, expected, discard))
        )
        self._start(partial(self._pump, server, client, lambda data: not discard.is_set()))

    def _pump(
        self, source: socket.socket, target: socket.socket, passes: Callable[[bytes], bool]
    ) -> None:
        source.settimeout(POLL_S)
        with suppress(OSError):  # the other pump, the client or the server has closed it already
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

    def _forward_statement(
        self, expected: list[bytes], discard: threading.Event, data: bytes
    ) -> bool:
        if self.acted.is_set() or expected[0] not in data:
            return True
        expected.pop(0)
        if not expected:
            self.acted.set()
            self.act()
            if self.eats_answer:
                discard.set()
        return True
