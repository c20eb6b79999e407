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
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from sam_pipeline.schema.net.stomp.frame import FrameReader, encode
from tests.support.brokers.stand_in import HOST, POLL_S, StandIn

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on for 0 s."""

Spoil = Callable[[Iterator[bytes]], Iterable[bytes]]


class Cut(Exception):
    """The connection is to end here, with a reset for the client."""


@dataclass
class FaultProxy(StandIn):
    """Forwards to `broker_port`; commands are those of broker frames."""

    broker_port: int
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

    def __post_init__(self) -> None:
        self._flows = threading.Event()
        self._flows.set()
        self._cut = 0
        """Connections before this number are to be reset."""

    @property
    def url(self) -> str:
        return f"stomp://{HOST}:{self.port}"

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
        self._await_flow()
        try:
            if self._stopping.is_set() or _gave_up(client):
                raise ConnectionAbortedError
            broker = socket.create_connection((HOST, self.broker_port))
        except OSError:
            client.close()
            return
        for end in (client, broker):
            end.settimeout(POLL_S)
        is_spoiled = number < self.spoils
        self._start(self._pump, client, broker, number, self._asked if is_spoiled else iter)
        self._pump(broker, client, number, self._answered if is_spoiled else iter, self.drip_s)

    def _pump(
        self,
        source: socket.socket,
        target: socket.socket,
        number: int,
        spoil: Spoil,
        drip_s: float = 0.0,
    ) -> None:
        try:
            for chunk in spoil(self._received(source, number)):
                self._await_flow()
                if number < self._cut:
                    raise Cut
                self._say(target, chunk, drip_s)
        except Cut:
            for end in (source, target):
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        except OSError:  # the other pump, the client or the broker has closed it already
            pass
        source.close()
        target.close()

    def _await_flow(self) -> None:
        while not self._flows.wait(POLL_S) and not self._stopping.is_set():
            pass

    def _received(self, source: socket.socket, number: int) -> Iterator[bytes]:
        while not self._stopping.is_set():
            if number < self._cut:
                raise Cut
            with suppress(TimeoutError):
                if not (data := source.recv(65536)):
                    return
                yield data

    def _asked(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        left = self.resets_after
        for data in chunks:
            if left is not None and len(data) >= left:
                yield data[:left]
                raise Cut
            left = left and left - len(data)
            yield data

    def _answered(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        reader = FrameReader()
        for data in chunks:
            if self.eats or self.resets_at:
                for frame in reader.feed(data):
                    if frame.command == self.resets_at:
                        raise Cut
                    if frame.command != self.eats:
                        yield encode(frame.command, frame.headers, frame.body)
            elif not self.mute:
                yield data


def _gave_up(client: socket.socket) -> bool:
    """Whether the client closed the connection while it waited."""
    closed = select.poll()
    closed.register(client, select.POLLRDHUP)
    return bool(closed.poll(0))
