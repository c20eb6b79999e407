"""A bare HTTP client for benchmarks: many connections in one thread, each with one request.

It looks only for the end of an answer, so it uses a fraction of the processor time of a server.
"""

from __future__ import annotations

import re
import selectors
import socket
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

TIMEOUT_S = 60.0
_LENGTH = re.compile(rb"(?i)\r\nContent-Length: *(\d+)")
_CHUNKED = re.compile(rb"(?i)\r\nTransfer-Encoding: *chunked")


@dataclass
class Posted:
    """What became of some requests; `answer_s` is counted from when each was due."""

    began: float = field(default_factory=time.perf_counter)
    ended: float = 0.0
    answer_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def took_s(self) -> float:
        """Seconds from the first request to the last answer."""
        return self.ended - self.began


def request(host: str, path: str, body: bytes, *headers: str) -> bytes:
    """A POST request that keeps the connection."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Connections:
    """Connections to one server, closed at the end of the block; new ones for each request unless
    they are kept.
    """

    def __init__(self, host: str, port: int, count: int, are_kept: bool = True) -> None:
        self._address = host, port
        self._count = count
        self._are_kept = are_kept
        self._selector = selectors.DefaultSelector()
        self._idle: list[socket.socket] = []

    def __enter__(self) -> Connections:
        for _ in range(self._count):
            self._connect()
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def post(self, requests: Sequence[bytes], a_second: float | None = None) -> Posted:
        """Send all requests, each as soon as a connection is free, or at an even pace."""
        posted = Posted()
        times = iter(_due(posted.began, len(requests), a_second))
        waiting = deque(requests)
        sent: dict[Any, float] = {}
        next_at = next(times, None)
        while waiting or sent:
            now = time.perf_counter()
            while waiting and self._idle and next_at is not None and next_at <= now:
                connection = self._idle.pop()
                connection.sendall(waiting.popleft())
                sent[connection] = now if a_second is None else next_at
                next_at = next(times, None)
            wait_s = TIMEOUT_S
            if waiting and self._idle and next_at is not None:
                wait_s = max(next_at - time.perf_counter(), 0)
            events = self._selector.select(wait_s)
            if not events and wait_s == TIMEOUT_S:
                raise SystemExit(f"no answer for {TIMEOUT_S:g} s")
            for key, _ in events:
                status = _read(key.fileobj, key.data)
                if status:
                    posted.statuses[status] += 1
                    posted.answer_s.append(time.perf_counter() - sent.pop(key.fileobj))
                    self._free(key.fileobj)
        posted.ended = time.perf_counter()
        return posted

    def _connect(self) -> None:
        connection = socket.create_connection(self._address, timeout=TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(connection, selectors.EVENT_READ, bytearray())
        self._idle.append(connection)

    def _free(self, connection: Any) -> None:
        """The answer of this connection has arrived."""
        if self._are_kept:
            self._idle.append(connection)
        else:
            self._selector.unregister(connection)
            connection.close()
            self._connect()


def _due(began: float, count: int, a_second: float | None) -> Iterator[float]:
    for number in range(count):
        yield began + (number / a_second if a_second else 0)


def _read(connection: Any, received: bytearray) -> int:
    """Read on; returns the status of a complete answer, or 0."""
    data = connection.recv(65536)
    if not data:
        raise SystemExit(f"the connection was closed after {bytes(received)!r}")
    received += data
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return 0
    length = _LENGTH.search(received, 0, end)
    if length:
        is_complete = len(received) >= end + 4 + int(length[1])
    elif _CHUNKED.search(received, 0, end):
        is_complete = received.endswith(b"\r\n0\r\n\r\n")
    else:
        raise SystemExit(f"an answer without a length: {bytes(received)!r}")
    if not is_complete:
        return 0
    status = int(received[9:12])
    received.clear()
    return status
