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

HOST = "127.0.0.1"
POLL_S = 0.005
CHUNK_BYTES = 65536
HEART_BEATS = "heart-beats"
"""A value of `eats`, besides the commands."""


class Cut(Exception):
    """The connection is to end here, with a reset for the client or without."""

    def __init__(self, reset: bool) -> None:
        super().__init__()
        self.reset = reset


@dataclass
class FaultProxy:
    """Listens on `host`, on a free port unless one is given, and forwards to `broker_port`.

    Commands may be those of client or broker frames.
    """

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
    """Frames of this command are dropped; with HEART_BEATS everything but frames is."""
    resets_at: str = ""
    """The connection is reset instead of forwarding the first frame of this command."""
    halves: str = ""
    """The first frame of this command is cut in the middle, and nothing follows it."""
    resets_after: int | None = None
    """The connection is reset once the client has sent this many bytes; later bytes are dropped."""
    spoils: int = 1000
    """The number of connections with faults; later ones are forwarded unchanged."""
    connections: int = 0
    sent_bytes: int = 0
    """Sent by the client, on all connections."""
    frames: Counter[str] = field(default_factory=Counter)
    """Seen so far, by command; only counted where the proxy parses frames."""

    def __enter__(self) -> FaultProxy:
        self._stopping = threading.Event()
        self._asking, self._answering = threading.Event(), threading.Event()
        self._waiting: list[socket.socket] = []
        self._cut = 0
        """Connections up to this number are to be reset."""
        self.heal()
        self._listener = socket.create_server((self.host, self.port))
        self._listener.settimeout(POLL_S)
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(10)
        for end in (*self._waiting, self._listener):
            end.close()

    @property
    def url(self) -> str:
        return f"stomp://{self.host}:{self.port}"

    def cut(self) -> None:
        """Reset all present connections; new ones work."""
        self._cut = self.connections

    def black_hole(self) -> None:
        """Forward nothing in either direction from now on, like a failed router."""
        self._asking.clear()
        self._answering.clear()

    def freeze_answers(self) -> None:
        """Forward no answers from now on; the broker still receives everything."""
        self._answering.clear()

    def heal(self) -> None:
        """Forward everything again, the delayed bytes first, as TCP would do."""
        self._asking.set()
        self._answering.set()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                client, _ = self._listener.accept()
                self.connections += 1
                self._waiting.append(client)
            if self._asking.is_set():
                waiting, self._waiting = self._waiting, []
                for client in waiting:
                    self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        try:
            if _gave_up(client):
                raise ConnectionAbortedError
            broker = socket.create_connection((HOST, self.broker_port))
        except OSError:
            client.close()
            return
        for end in (client, broker):
            end.settimeout(POLL_S)
        spoiled = self.connections <= self.spoils
        from_client, from_broker = (self._asked, self._answered) if spoiled else (_whole, _whole)
        for source, target, transform, flow in (
            (client, broker, from_client, self._asking),
            (broker, client, from_broker, self._answering),
        ):
            direction = _Way(source, target, client, flow, self.connections)
            pump = threading.Thread(target=self._pump, args=(direction, transform))
            self._threads.append(pump)
            pump.start()

    def _pump(
        self, direction: _Way, transform: Callable[[Iterator[bytes]], Iterable[bytes]]
    ) -> None:
        try:
            for chunk in transform(self._chunks(direction)):
                self._push(direction, chunk)
        except Cut as cut:
            if cut.reset:
                with suppress(OSError):
                    direction.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        except OSError:  # the other pump, the client or the broker has closed it already
            pass
        for end in (direction.source, direction.target):
            end.close()

    def _push(self, direction: _Way, chunk: bytes) -> None:
        unsent = memoryview(chunk)
        while unsent and self._goes_on(direction):
            if direction.flow.wait(POLL_S):
                with suppress(TimeoutError):
                    unsent = unsent[direction.target.send(unsent) :]

    def _chunks(self, direction: _Way) -> Iterator[bytes]:
        while self._goes_on(direction):
            with suppress(TimeoutError):
                data = direction.source.recv(CHUNK_BYTES)
                if not data:
                    return
                yield data

    def _goes_on(self, direction: _Way) -> bool:
        if direction.number <= self._cut:
            raise Cut(reset=True)
        return not self._stopping.is_set()

    def _asked(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        left = self.resets_after
        for data in self._spoiled(chunks):
            self.sent_bytes += len(data)
            if left is not None and len(data) >= left:
                yield data[:left]
                raise Cut(reset=True)
            left = left and left - len(data)
            yield data

    def _answered(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for data in self._spoiled(chunks):
            if self.mute:
                continue
            if self._stopping.wait(self.latency_s):
                return
            yield from self._dripped(data)

    def _spoiled(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        if not (self.eats or self.resets_at or self.halves):
            yield from chunks
            return
        reader = FrameReader()
        for data in chunks:
            for frame in reader.feed(data):
                self.frames[frame.command] += 1
                if frame.command == self.resets_at:
                    raise Cut(reset=True)
                if frame.command == self.halves:
                    encoded = encode(frame.command, frame.headers, frame.body)
                    yield encoded[: len(encoded) // 2]
                    self._stopping.wait()
                elif frame.command != self.eats:
                    yield encode(frame.command, frame.headers, frame.body)

    def _dripped(self, data: bytes) -> Iterator[bytes]:
        if not self.drip_s:
            yield data
            return
        for byte in data:
            if self._stopping.wait(self.drip_s):
                return
            yield bytes([byte])


class _Way(NamedTuple):
    """One direction of a connection."""

    source: socket.socket
    target: socket.socket
    client: socket.socket
    flow: threading.Event
    number: int


_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on for 0 s."""


def _gave_up(client: socket.socket) -> bool:
    """Whether the client closed the connection while it waited."""
    closed = select.poll()
    closed.register(client, select.POLLRDHUP)
    return bool(closed.poll(0))


def _whole(chunks: Iterator[bytes]) -> Iterator[bytes]:
    return chunks
