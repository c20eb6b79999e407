"""The content of a queue of a real broker, read with stomp.py, independently of our own code."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable
from typing import Any

import stomp

from tests.services.broker import StompServer

WAIT_S = 20.0
QUIET_S = 0.2


def ids(frames: list[Any]) -> list[str]:
    return [frame.headers["samMessageId"] for frame in frames]


def received(server: StompServer, destination: str, count: int) -> list[Any]:
    """At least `count` frames of a queue, and those that arrive shortly after."""
    return _read(server, destination, lambda frames: len(frames) >= count)


def received_ids(server: StompServer, destination: str, expected: Iterable[str]) -> list[str]:
    """The ids of the messages of a queue up to the last expected one, duplicates included."""
    missing = set(expected)

    def complete(frames: list[Any]) -> bool:
        missing.difference_update(ids(frames[-1:]))
        return not missing

    return ids(_read(server, destination, complete))


def _read(server: StompServer, destination: str, enough: Callable[[list[Any]], bool]) -> list[Any]:
    arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
    connection = stomp.Connection12(
        [(server.host, server.port)], vhost="/", auto_decode=False, try_loopback_connect=False
    )
    connection.set_listener("test", _Listener(arrived))
    connection.connect()
    connection.subscribe(destination, id="1", ack="auto")
    frames: list[Any] = []
    try:
        while not enough(frames):
            frames.append(arrived.get(timeout=WAIT_S))
        while True:
            frames.append(arrived.get(timeout=QUIET_S))
    except queue.Empty:
        return frames
    finally:
        connection.transport.disconnect_socket()


class _Listener(stomp.ConnectionListener):  # type: ignore[misc]
    def __init__(self, arrived: queue.SimpleQueue[Any]) -> None:
        self._arrived = arrived

    def on_message(self, frame: Any) -> None:
        self._arrived.put(frame)
