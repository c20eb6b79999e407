"""A STOMP broker in threads whose topics lose and repeat messages on purpose, or slow down.

    with UnreliableBroker(loses=lambda n: n == 7) as broker:
        load_test(broker.url)

Each subscription gets every message that is sent after it, except those for which `loses` is true
of their number at this subscription, and twice those for which `repeats` is. It confirms all.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from sam_pipeline.schema.net.stomp_frame import Frame, FrameReader, encode
from tests.support.brokers.stand_in import HOST, POLL_S, StandIn


def never(number: int) -> bool:
    return False


@dataclass(eq=False)
class _Subscriber:
    connection: socket.socket
    sending: threading.Lock = field(default_factory=threading.Lock)
    count: int = 0


@dataclass
class UnreliableBroker(StandIn):
    loses: Callable[[int], bool] = never
    repeats: Callable[[int], bool] = never
    sent: int = 0
    """The number of messages it has confirmed."""
    unsubscribed: int = 0
    _subscribers: list[_Subscriber] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"stomp://{HOST}:{self.port}"

    def _serve(self, connection: socket.socket, number: int) -> None:
        connection.settimeout(POLL_S)
        reader = FrameReader()
        with connection, suppress(ConnectionError):
            while not self._stopping.is_set():
                try:
                    data = connection.recv(1 << 16)
                except TimeoutError:
                    continue
                if not data:
                    break
                for frame in reader.feed(data):
                    self._answer(connection, frame)
        with self._lock:
            self._subscribers = [s for s in self._subscribers if s.connection is not connection]

    def _answer(self, connection: socket.socket, frame: Frame) -> None:
        if frame.command == "CONNECT":
            connection.sendall(encode("CONNECTED", {"version": "1.2", "server": "Unreliable/1.0"}))
        elif frame.command == "SUBSCRIBE":
            with self._lock:
                self._subscribers.append(_Subscriber(connection))
        elif frame.command == "UNSUBSCRIBE":
            self.unsubscribed += 1
        elif frame.command == "SEND":
            self._deliver(frame)
        if "receipt" in frame.headers:
            receipt = encode("RECEIPT", {"receipt-id": frame.headers["receipt"]})
            self._say(connection, receipt)

    def _deliver(self, frame: Frame) -> None:
        with self._lock:
            self.sent += 1
            subscribers = list(self._subscribers)
        for subscriber in subscribers:
            with subscriber.sending:
                subscriber.count += 1
                times = 1 - self.loses(subscriber.count) + self.repeats(subscriber.count)
                ack = {"subscription": "load", "message-id": "m", "ack": str(subscriber.count)}
                message = encode("MESSAGE", {**frame.headers, **ack}, frame.body)
            self._say(subscriber.connection, message * times)

    def _say(self, connection: socket.socket, data: bytes) -> None:
        unsent = memoryview(data)
        with self._lock:  # frames must not be mixed
            while unsent and not self._stopping.is_set():
                with suppress(TimeoutError):
                    unsent = unsent[connection.send(unsent) :]
