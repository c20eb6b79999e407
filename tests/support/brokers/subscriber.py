"""A STOMP subscriber of a real broker, for messages published after it subscribed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from sam_pipeline.schema.net.stomp_frame import Frame, FrameReader, encode

WAIT_S = 20.0


class Server(Protocol):
    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


@contextmanager
def subscribed(server: Server, destination: str) -> Iterator[Iterator[Frame]]:
    """The messages that arrive at a topic or queue from now on."""
    address = (server.host, server.port)
    with socket.create_connection(address, timeout=WAIT_S) as connection:
        frames = _frames(connection)
        connection.sendall(encode("CONNECT", {"accept-version": "1.2", "host": "/"}))
        assert next(frames).command == "CONNECTED"
        headers = {"id": "1", "destination": destination, "ack": "auto", "receipt": "subscribed"}
        connection.sendall(encode("SUBSCRIBE", headers))
        assert next(frames).command == "RECEIPT"
        yield (frame for frame in frames if frame.command == "MESSAGE")


def _frames(connection: socket.socket) -> Iterator[Frame]:
    reader = FrameReader()
    while data := connection.recv(65536):
        yield from reader.feed(data)
