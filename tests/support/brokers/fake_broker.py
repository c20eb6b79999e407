"""A STOMP broker in a thread: real frames on a real socket, with faults on request.

    with FakeBroker() as broker:
        publish([message], PublisherConfig(brokers=(broker.url,)))
    assert broker.taken == [...]

It knows CONNECT, SEND, BEGIN, COMMIT, SUBSCRIBE, ACK, UNSUBSCRIBE and DISCONNECT with their
receipts; a destination is a queue, and a subscription gets one message at a time. The fields of
`FakeBroker` change this behaviour.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import NoReturn

from tests.support.brokers.stand_in import HOST, POLL_S, StandIn

DRIP_S = 0.2
HANDSHAKE_S = 5.0

_ESCAPES = {"\\c": ":", "\\n": "\n", "\\r": "\r", "\\\\": "\\"}


@dataclass(frozen=True)
class Frame:
    command: str
    headers: dict[str, str]
    body: bytes = b""

    def encoded(self) -> bytes:
        lines = [self.command, *(f"{name}:{value}" for name, value in self.headers.items())]
        return "\n".join([*lines, "", ""]).encode() + self.body + b"\0"


@dataclass
class FakeBroker(StandIn):
    """Listens on a free port; `taken` has the SEND frames it accepted, in order."""

    server: str = "Fake/1.0"
    version: str = "1.2"
    mute: bool = False
    """Accepts connections and sends nothing."""
    refuses_login: str = ""
    """Answers CONNECT with this ERROR."""
    rejects: Callable[[Frame], str] = lambda frame: ""
    """The message of the ERROR that answers a SEND and ends the connection; empty to accept it."""
    drops_after: int | None = None
    """Closes the connection at the next SEND after this many."""
    eats_receipts: bool = False
    """Accepts every SEND and confirms none."""
    freezes_after: int | None = None
    """Stops reading after this many SENDs."""
    drips: bool = False
    """Sends one byte every DRIP_S."""
    greeting: bytes = b""
    """Sends this as soon as a client connects and then reads nothing."""
    floods: int = 0
    """The number of heart-beats it sends at the first SEND, before it reads on."""
    forbids_subscribing: str = ""
    """The message of the ERROR that answers a SUBSCRIBE and ends the connection."""
    explains: str = ""
    """The body of that ERROR."""
    loses: bool = False
    """Confirms every SEND and delivers nothing."""
    tls: ssl.SSLContext | None = None
    """Speaks TLS with this certificate."""
    queue: list[Frame] = field(default_factory=list)
    """The messages that wait for a subscription, oldest first; an ACK removes one."""
    taken: list[Frame] = field(default_factory=list)
    logins: list[Frame] = field(default_factory=list)
    subscriptions: list[Frame] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{'stomp+ssl' if self.tls else 'stomp'}://{HOST}:{self.port}"

    @property
    def ids(self) -> list[str]:
        """The ids of the accepted messages."""
        return [frame.headers["samMessageId"] for frame in self.taken]

    def _serve(self, connection: socket.socket, number: int) -> None:
        with connection, suppress(OSError, StopIteration):
            if self.tls is None:
                self._converse(connection)
                return
            connection.settimeout(HANDSHAKE_S)
            with self.tls.wrap_socket(connection, server_side=True) as secured:
                self._converse(secured)

    def _converse(self, connection: socket.socket) -> None:
        connection.settimeout(POLL_S)
        if self.mute or self.greeting:
            connection.sendall(self.greeting)
            self._stopping.wait()
        conversation = _Conversation(self, connection)
        for frame in _frames(connection, self._stopping):
            conversation.answer(frame)


class _Conversation:
    """One connection, ended by StopIteration."""

    def __init__(self, broker: FakeBroker, connection: socket.socket) -> None:
        self._broker = broker
        self._connection = connection
        self._open: dict[str, list[Frame]] = {}
        self._subscription = ""
        self._auto_ack = False
        self._delivered = False

    def answer(self, frame: Frame) -> None:
        if frame.command in ("CONNECT", "STOMP"):
            self._broker.logins.append(frame)
            self._log_in()
        elif frame.command == "SEND":
            self._take(frame)
        elif frame.command == "BEGIN":
            self._open[frame.headers["transaction"]] = []
        elif frame.command == "COMMIT":
            self._broker.taken += self._open.pop(frame.headers["transaction"])
        elif frame.command == "SUBSCRIBE":
            self._subscribe(frame)
        elif frame.command == "ACK":
            self._broker.queue.pop(0)
            self._delivered = False
        if "receipt" in frame.headers and not self._broker.eats_receipts:
            self._say(Frame("RECEIPT", {"receipt-id": frame.headers["receipt"]}))
        if frame.command == "DISCONNECT":
            raise StopIteration
        self._deliver()

    def _log_in(self) -> None:
        if self._broker.refuses_login:
            self._say(Frame("ERROR", {"message": self._broker.refuses_login}))
            raise StopIteration
        headers = {"server": self._broker.server, "version": self._broker.version}
        self._say(Frame("CONNECTED", headers))

    def _take(self, frame: Frame) -> None:
        broker = self._broker
        count = len(broker.taken) + sum(map(len, self._open.values()))
        if count == broker.drops_after:
            self._end_after_receipts()
        if count == broker.freezes_after:
            broker._stopping.wait()
            raise StopIteration
        if broker.floods and not broker.taken:
            self._push(b"\n" * broker.floods)
        error = broker.rejects(frame)
        if error:
            self._say(Frame("ERROR", {"message": error}))
            raise StopIteration
        transaction = frame.headers.get("transaction")
        (self._open[transaction] if transaction else broker.taken).append(frame)
        if self._subscription and not broker.loses:
            broker.queue.append(frame)

    def _push(self, data: bytes) -> None:
        unsent = memoryview(data)
        while unsent and not self._broker._stopping.is_set():
            with suppress(TimeoutError):
                unsent = unsent[self._connection.send(unsent) :]

    def _subscribe(self, frame: Frame) -> None:
        if self._broker.forbids_subscribing:
            headers = {"message": self._broker.forbids_subscribing}
            self._say(Frame("ERROR", headers, self._broker.explains.encode()))
            raise StopIteration
        self._subscription = frame.headers["id"]
        self._auto_ack = frame.headers.get("ack", "auto") == "auto"
        self._broker.subscriptions.append(frame)

    def _deliver(self) -> None:
        if self._subscription and self._broker.queue and not self._delivered:
            self._delivered = not self._auto_ack
            sent = self._broker.queue.pop(0) if self._auto_ack else self._broker.queue[0]
            headers = {"subscription": self._subscription, "message-id": "m-1", "ack": "a-1"}
            self._say(Frame("MESSAGE", {**sent.headers, **headers}, sent.body))

    def _end_after_receipts(self) -> NoReturn:
        """Close only after reading everything: unread bytes would turn the close into a reset."""
        self._connection.shutdown(socket.SHUT_WR)
        while not self._broker._stopping.is_set():
            with suppress(TimeoutError):
                if not self._connection.recv(65536):
                    break
        raise StopIteration

    def _say(self, frame: Frame) -> None:
        if not self._broker.drips:
            self._push(frame.encoded())
            return
        for byte in frame.encoded():
            self._connection.sendall(bytes([byte]))
            if self._broker._stopping.wait(DRIP_S):
                raise StopIteration


def _frames(connection: socket.socket, stopping: threading.Event) -> Iterator[Frame]:
    buffer = b""
    while not stopping.is_set():
        with suppress(TimeoutError):
            chunk = connection.recv(65536)
            if not chunk:
                return
            buffer += chunk
        while True:
            frame, buffer = _parse(buffer.lstrip(b"\n"))
            if frame is None:
                break
            yield frame


def _parse(buffer: bytes) -> tuple[Frame | None, bytes]:
    """The first frame, if it is complete, and the remaining bytes."""
    head_end = buffer.find(b"\n\n")
    if head_end < 0:
        return None, buffer
    command, *lines = buffer[:head_end].decode().split("\n")
    pairs = (line.partition(":") for line in lines)
    headers = {_unescaped(name): _unescaped(value) for name, _, value in pairs}
    start, length = head_end + 2, headers.get("content-length")
    end = buffer.find(b"\0", start) if length is None else start + int(length)
    if end < 0 or len(buffer) <= end:
        return None, buffer
    return Frame(command, headers, buffer[start:end]), buffer[end + 1 :]


def _unescaped(text: str) -> str:
    parts = iter(text)
    return "".join(
        _ESCAPES[character + next(parts)] if character == "\\" else character for character in parts
    )


def closed_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def black_hole() -> Iterator[str]:
    """The URL of a broker whose backlog is full, so that connecting times out."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((HOST, 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"stomp://{HOST}:{listener.getsockname()[1]}"


def wait_for(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.01)
