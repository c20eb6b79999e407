"""A TCP proxy that spoils the way to a real broker, in threads of its own.

    with FaultProxy(broker.port, eats="RECEIPT") as proxy:
        publish([message], PublisherConfig(brokers=(proxy.url,)))

The keywords of `FaultProxy` say what becomes of the bytes.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from schema.stomp_frame import FrameReader, encode

HOST = "127.0.0.1"
POLL_S = 0.05
CHUNK_BYTES = 65536


class Cut(Exception):
    """The connection ends here; by a reset where the client is to see one."""

    def __init__(self, reset: bool) -> None:
        super().__init__()
        self.reset = reset


@dataclass
class FaultProxy:
    """Listens on a free port and speaks for the broker on `broker_port`."""

    broker_port: int
    latency_s: float = 0.0
    """Every answer comes so much later."""
    drip_s: float = 0.0
    """Answers come byte by byte, one each so many seconds."""
    mute: bool = False
    """No answer comes."""
    eats: str = ""
    """Frames of this command do not come."""
    resets_at: str = ""
    """The first frame of this command comes as a reset of the connection."""
    halves: str = ""
    """Of the first frame of this command one half comes, and nothing after it."""
    resets_after: int | None = None
    """The connection is reset when the client has sent so many bytes, and no more go on."""
    spoils: int = 1000
    """So many connections; later ones are as good as without a proxy."""
    connections: int = 0
    sent_bytes: int = 0
    """By the client, on all connections."""

    def __enter__(self) -> FaultProxy:
        self._stopping = threading.Event()
        self._listener = socket.create_server((HOST, 0))
        self._listener.settimeout(POLL_S)
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    @property
    def url(self) -> str:
        return f"stomp://{HOST}:{self.port}"

    def _accept(self) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                client, _ = self._listener.accept()
                self.connections += 1
                self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        broker = socket.create_connection((HOST, self.broker_port))
        for end in (client, broker):
            end.settimeout(POLL_S)
        spoiled = self.connections <= self.spoils
        asked, answered = (self._asked, self._answered) if spoiled else (_whole, _whole)
        for source, target, treat in ((client, broker, asked), (broker, client, answered)):
            pump = threading.Thread(target=self._pump, args=(source, target, client, treat))
            self._threads.append(pump)
            pump.start()

    def _pump(
        self,
        source: socket.socket,
        target: socket.socket,
        client: socket.socket,
        treat: Callable[[Iterator[bytes]], Iterable[bytes]],
    ) -> None:
        try:
            for piece in treat(self._chunks(source)):
                self._push(target, piece)
        except Cut as cut:
            if cut.reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:  # the other pump, or one of the ends, was first
            pass
        for end in (source, target):
            end.close()

    def _push(self, target: socket.socket, piece: bytes) -> None:
        rest = memoryview(piece)
        while rest and not self._stopping.is_set():
            with suppress(TimeoutError):
                rest = rest[target.send(rest) :]

    def _chunks(self, source: socket.socket) -> Iterator[bytes]:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                data = source.recv(CHUNK_BYTES)
                if not data:
                    return
                yield data

    def _asked(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        left = self.resets_after
        for data in chunks:
            self.sent_bytes += len(data)
            if left is not None and len(data) >= left:
                yield data[:left]
                raise Cut(reset=True)
            left = left and left - len(data)
            yield data

    def _answered(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for data in self._spoiled(chunks):
            if self._stopping.wait(self.latency_s):
                return
            yield from self._dripped(data)

    def _spoiled(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        reader = FrameReader()
        for data in chunks:
            frames = [] if self.mute else list(reader.feed(data))
            commands = [frame.command for frame in frames]
            if self.resets_at in commands:
                raise Cut(reset=True)
            whole = [
                encode(*frame) for frame in frames if frame.command not in (self.eats, self.halves)
            ]
            yield b"".join(whole)
            if self.halves in commands:
                half = encode(*frames[commands.index(self.halves)])
                yield half[: len(half) // 2]
                self._stopping.wait()

    def _dripped(self, data: bytes) -> Iterator[bytes]:
        if not self.drip_s:
            yield data
            return
        for byte in data:
            if self._stopping.wait(self.drip_s):
                return
            yield bytes([byte])


def _whole(chunks: Iterator[bytes]) -> Iterator[bytes]:
    return chunks
