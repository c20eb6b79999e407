"""What stand-ins for servers have in common: a port, and a thread for each connection."""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Self

HOST = "127.0.0.1"
POLL_S = 0.005
"""How often its threads check whether the block has ended."""


class StandIn(ABC):
    """Listens on a free port, unless one is given, for as long as its block."""

    host: str = HOST
    port: int = 0
    connections: int = 0

    def __enter__(self) -> Self:
        self._stopping = threading.Event()
        self._listener = socket.create_server((self.host, self.port), backlog=100)
        self._listener.settimeout(POLL_S)
        self.port = int(self._listener.getsockname()[1])
        self._threads: list[threading.Thread] = []
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                connection, _ = self._listener.accept()
                number, self.connections = self.connections, self.connections + 1
                self._start(self._serve, connection, number)

    def _chunks(self, connection: socket.socket) -> Iterator[bytes]:
        """What arrives, until the peer closes the connection or the block ends."""
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                if not (data := connection.recv(65536)):
                    return
                yield data

    def _say(self, connection: socket.socket, data: bytes, drip_s: float = 0.0) -> None:
        """Send the bytes, with `drip_s` after each of them, unless the block ends."""
        unsent = memoryview(data)
        while unsent and not self._stopping.wait(drip_s):
            with suppress(TimeoutError):
                unsent = unsent[connection.send(unsent[:1] if drip_s else unsent) :]

    @abstractmethod
    def _serve(self, connection: socket.socket, number: int) -> None:
        """Converse until the client closes the connection, or `_stopping` is set.

        `number` is that of the connections before it.
        """
