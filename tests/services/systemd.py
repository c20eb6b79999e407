"""The receiving end of sd_notify."""

from __future__ import annotations

import socket
from contextlib import suppress


class Systemd:
    """A notify socket at a path, or at an abstract name that begins with @."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.messages: list[str] = []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self.socket.setblocking(False)

    def __enter__(self) -> Systemd:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def heard(self) -> list[str]:
        """The messages received since the last call."""
        before = len(self.messages)
        with suppress(BlockingIOError):
            while True:
                self.messages.append(self.socket.recv(65536).decode())
        return self.messages[before:]

    def all_heard(self) -> list[str]:
        """All messages received so far."""
        self.heard()
        return self.messages
