"""A TCP proxy that injects faults into the connection to a real broker, in its own threads.

    with FaultProxy(broker.port, eats="RECEIPT") as proxy:
        publish([message], PublisherConfig(brokers=(proxy.url,)))
        proxy.black_hole()
        proxy.heal()

The fields of `FaultProxy` define faults from the start; its methods change the state later.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from sam_pipeline.schema.net.stomp_frame import FrameReader, encode
from tests.support.brokers.stand_in import HOST, POLL_S, StandIn

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on for 0 s."""


class Cut(Exception):
    """The connection is to end here, with a reset for the client."""


class _Way(NamedTuple):
    """One direction of a connection."""

    source: socket.socket
    target: socket.socket
    client: socket.socket
    number: int


@dataclass
class FaultProxy(StandIn):
    """Forwards to `broker_port`; commands may be those of client or broker frames."""

    broker_port: int
    host: str = HOST
    port: int = 0
    latency_s: float = 0.0
    """The delay of every answer."""
    drip_s: float = 0.0
    """Answers are forwarded byte by byte, with this delay between two bytes."""
    mute: bool = False
    """Answers are dropped."""
    eats: str = ""
    """Frames of this command are dropped."""
    resets_at: str = ""
    """The connection is reset instead of forwarding the first frame of this command."""
    resets_after: int | None = None
    """The connection is reset once the client has sent this many bytes; later bytes are dropped."""
    spoils: int = 1000
    """The number of connections with faults; later ones are forwarded unchanged."""
    connections: int = 0
    sent_bytes: int = 0
    """Sent by the client, on all connections."""
    frames: Counter[str] = field(default_factory=Counter)
    """Seen so far, by command; only counted where the proxy parses frames."""

    def __post_init__(self) -> None:
        self._flows = threading.Event()
        self._flows.set()
        self._cut = 0
        """Connections before this number are to be reset."""

    @property
    def url(self) -> str:
        return f"stomp://{self.host}:{self.port}"

    def cut(self) -> None:
        """Reset all present connections; new ones work."""
        self._cut = self.connections

    def black_hole(self) -> None:
        """Forward nothing in either direction from now on, like a failed router."""
        self._flows.clear()

    def heal(self) -> None:
        """Forward everything again, the delayed bytes first, as TCP would do."""
        self._flows.set()

    def _serve(self, client: socket.socket, number: int) -> None:
        while not self._flows.wait(POLL_S) and not self._stopping.is_set():
            pass
        try:
            if self._stopping.is_set() or _gave_up(client):
                raise ConnectionAbortedError
            broker = socket.create_connection((HOST, self.broker_port))
        except OSError:
            client.close()
            return
        for end in (client, broker):
            end.settimeout(POLL_S)
        spoiled = number < self.spoils
        asks = _Way(client, broker, client, number)
        answers = _Way(broker, client, client, number)
        self._start(self._pump, asks, self._asked if spoiled else iter)
        self._pump(answers, self._answered if spoiled else iter)

    def _pump(self, way: _Way, spoil: Callable[[Iterator[bytes]], Iterable[bytes]]) -> None:
        try:
            for chunk in spoil(self._chunks(way)):
                self._push(way, chunk)
        except Cut:
            with suppress(OSError):
                way.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        except OSError:  # the other pump, the client or the broker has closed it already
            pass
        way.source.close()
        way.target.close()

    def _push(self, way: _Way, chunk: bytes) -> None:
        unsent = memoryview(chunk)
        while unsent and self._goes_on(way):
            if self._flows.wait(POLL_S):
                with suppress(TimeoutError):
                    unsent = unsent[way.target.send(unsent) :]

    def _chunks(self, way: _Way) -> Iterator[bytes]:
        while self._goes_on(way):
            with suppress(TimeoutError):
                data = way.source.recv(65536)
                if not data:
                    return
                yield data

    def _goes_on(self, way: _Way) -> bool:
        if way.number < self._cut:
            raise Cut
        return not self._stopping.is_set()

    def _asked(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        left = self.resets_after
        for data in self._spoiled(chunks):
            self.sent_bytes += len(data)
            if left is not None and len(data) >= left:
                yield data[:left]
                raise Cut
            left = left and left - len(data)
            yield data

    def _answered(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for data in self._spoiled(chunks):
            if self.mute:
                continue
            if self._stopping.wait(self.latency_s):
                return
            if not self.drip_s:
                yield data
                continue
            for byte in data:
                if self._stopping.wait(self.drip_s):
                    return
                yield bytes([byte])

    def _spoiled(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        if not (self.eats or self.resets_at):
            yield from chunks
            return
        reader = FrameReader()
        for data in chunks:
            for frame in reader.feed(data):
                self.frames[frame.command] += 1
                if frame.command == self.resets_at:
                    raise Cut
                if frame.command != self.eats:
                    yield encode(frame.command, frame.headers, frame.body)


def _gave_up(client: socket.socket) -> bool:
    """Whether the client closed the connection while it waited."""
    closed = select.poll()
    closed.register(client, select.POLLRDHUP)
    return bool(closed.poll(0))
