"""STOMP clients of a real broker; subscribers take nothing from its other consumers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from sam_pipeline.consumer.sources.stomp.dialects import dialect_of, subscribe_headers
from sam_pipeline.schema.net.stomp.frame import Fault, Frame, FrameReader, encode
from tests.services.broker import StompServer

WAIT_S = 20.0
QUIET_S = 2.0
"""The broker has sent everything if nothing arrives for this time."""
PREFETCH = 1_000_000


@contextmanager
def connected(
    host: str, port: int, timeout_s: float = WAIT_S, /, **headers: str
) -> Iterator[tuple[socket.socket, Iterator[Frame | Fault], str]]:
    """A connection, what it receives, and the kind of the broker."""
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        frames = _frames(connection)
        login = {"accept-version": "1.2", "host": "/"}
        connection.sendall(encode("CONNECT", login | headers))
        yield connection, frames, expect(frames, "CONNECTED").headers["server"]


def _frames(connection: socket.socket) -> Iterator[Frame | Fault]:
    reader = FrameReader()
    while data := connection.recv(1 << 20):
        yield from reader.feed(data)
    raise ConnectionError("the broker closed the connection")


def expect(frames: Iterator[Frame | Fault], command: str) -> Frame | Fault:
    """The next frame, which must have this command."""
    frame = next(frames)
    if frame.command != command:
        raise ConnectionError(f"expected {command}, got {frame}")
    return frame


@contextmanager
def subscribed(server: StompServer, destination: str) -> Iterator[Iterator[Frame | Fault]]:
    """The messages that arrive at a topic or queue from now on."""
    with connected(server.host, server.port) as (connection, frames, _):
        headers = {"id": "1", "destination": destination, "ack": "auto", "receipt": "subscribed"}
        connection.sendall(encode("SUBSCRIBE", headers))
        expect(frames, "RECEIPT")
        yield (frame for frame in frames if frame.command == "MESSAGE")


def backlog(broker: StompServer, consumer: str, destination: str) -> list[bytes]:
    """The bodies of all messages that the broker has for a durable subscription; none is acked."""
    bodies = []
    login = {"client-id": consumer}
    with connected(broker.host, broker.port, **login) as (connection, frames, kind):
        headers = subscribe_headers(dialect_of(kind), consumer, destination, PREFETCH)
        ours = {**headers, "id": "1", "ack": "client-individual"}
        connection.sendall(encode("SUBSCRIBE", ours))
        connection.settimeout(QUIET_S)
        try:
            while True:
                bodies.append(expect(frames, "MESSAGE").body)
        except TimeoutError:
            return bodies
