"""The messages that a broker still has for a durable subscription, which remain there."""

from __future__ import annotations

import socket

from sam_pipeline.consumer.sources.stomp.dialects import dialect_of, subscribe_headers
from sam_pipeline.schema.net.stomp_frame import FrameReader, encode
from tests.services.broker import StompServer

WAIT_S = 20.0
QUIET_S = 2.0
"""The broker has sent everything if nothing arrives for this time."""
PREFETCH = 1_000_000


def backlog(broker: StompServer, consumer: str, destination: str) -> list[bytes]:
    """The bodies of the messages; none is acked, so the broker keeps them all."""
    bodies = []
    with socket.create_connection((broker.host, broker.port), timeout=WAIT_S) as connection:
        login = {"accept-version": "1.2", "host": "/", "client-id": consumer}
        connection.sendall(encode("CONNECT", login))
        reader = FrameReader()
        try:
            while data := connection.recv(1 << 20):
                for frame in reader.feed(data):
                    assert frame.command != "ERROR", frame
                    if frame.command == "MESSAGE":
                        bodies.append(frame.body)
                    if frame.command == "CONNECTED":
                        dialect = dialect_of(frame.headers["server"])
                        headers = subscribe_headers(dialect, consumer, destination, PREFETCH)
                        ours = {**headers, "id": "1", "ack": "client-individual"}
                        connection.sendall(encode("SUBSCRIBE", ours))
                        connection.settimeout(QUIET_S)
        except TimeoutError:
            return bodies
    raise ConnectionError(f"{broker.url} closed the connection")
