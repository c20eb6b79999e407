"""A TCP proxy that spoils the way to a real broker, in threads of its own.

    with FaultProxy(broker.port, eats="RECEIPT") as proxy:
        publish([message], PublisherConfig(brokers=(proxy.url,)))
        proxy.black_hole()
        proxy.heal()

The keywords of `FaultProxy` say what becomes of the bytes; its verbs change the way at will.
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
POLL_S = 0.05
CHUNK_BYTES = 65536
HEART_BEATS = "heart-beats"
"""What `eats` may name beside a command."""


class Cut(Exception):
    """The connection ends here; by a reset where the client is to see one."""

    def __init__(self, reset: bool) -> None:
        super().__init__()
        self.reset = reset


@dataclass
class FaultProxy:
    """Listens on `host`, and on a free port unless one is given, for the broker on `broker_port`.

    Commands of frames may be those of either end.
    """

    broker_port: int
    host: str = HOST
    port: int = 0
    latency_s: float = 0.0
    """Every answer comes so much later."""
    drip_s: float = 0.0
    """Answers come byte by byte; seconds between two of them."""
    mute: bool = False
    """No answer comes."""
    eats: str = ""
    """Frames of this command do not come; HEART_BEATS: only frames do."""
    resets_at: str = ""
    """The first frame of this command comes as a reset of the connection."""
    halves: str = ""
    """Of the first frame of this command one half comes, and nothing after it."""
    resets_after: int | None = None
    """The connection is reset once the client has sent this many bytes; the rest is dropped."""
    spoils: int = 1000
    """How many connections; later ones are as good as without a proxy."""
    connections: int = 0
    sent_bytes: int = 0
    """By the client, on all connections."""
    frames: Counter[str] = field(default_factory=Counter)
    """By command, on connections where it looks at frames."""

    def __enter__(self) -> FaultProxy:
        self._stopping = threading.Event()
        self._asking, self._answering = threading.Event(), threading.Event()
        self._waiting: list[socket.socket] = []
        self._cut = 0
        """Connections up to this number are to end."""
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
        """Reset the connections there are; new ones are as good as ever."""
        self._cut = self.connections

    def black_hole(self) -> None:
        """From now on nothing passes either way, as behind a router that died."""
        self._asking.clear()
        self._answering.clear()

    def freeze_answers(self) -> None:
        """From now on nothing comes from the broker, which still hears all."""
        self._answering.clear()

    def heal(self) -> None:
        """All passes again; as TCP would do, what was held back comes first."""
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
        asked, answered = (self._asked, self._answered) if spoiled else (_whole, _whole)
        for source, target, treat, flow in (
            (client, broker, asked, self._asking),
            (broker, client, answered, self._answering),
        ):
            way = _Way(source, target, client, flow, self.connections)
            pump = threading.Thread(target=self._pump, args=(way, treat))
            self._threads.append(pump)
            pump.start()

    def _pump(self, way: _Way, treat: Callable[[Iterator[bytes]], Iterable[bytes]]) -> None:
        try:
            for piece in treat(self._chunks(way)):
                self._push(way, piece)
        except Cut as cut:
            if cut.reset:
                with suppress(OSError):
                    way.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        except OSError:  # the other pump, or one of the ends, was first
            pass
        for end in (way.source, way.target):
            end.close()

    def _push(self, way: _Way, piece: bytes) -> None:
        rest = memoryview(piece)
        while rest and self._goes_on(way):
            if way.flow.wait(POLL_S):
                with suppress(TimeoutError):
                    rest = rest[way.target.send(rest) :]

    def _chunks(self, way: _Way) -> Iterator[bytes]:
        while self._goes_on(way):
            with suppress(TimeoutError):
                data = way.source.recv(CHUNK_BYTES)
                if not data:
                    return
                yield data

    def _goes_on(self, way: _Way) -> bool:
        if way.number <= self._cut:
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
                    half = encode(*frame)
                    yield half[: len(half) // 2]
                    self._stopping.wait()
                elif frame.command != self.eats:
                    yield encode(*frame)

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
    """Whether it closed the connection while it waited."""
    closed = select.poll()
    closed.register(client, select.POLLRDHUP)
    return bool(closed.poll(0))


def _whole(chunks: Iterator[bytes]) -> Iterator[bytes]:
    return chunks
