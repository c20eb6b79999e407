"""A STOMP broker in a thread: real frames on a real socket, with faults on request.

    with FakeBroker() as broker:
        publish([message], PublisherConfig(brokers=(broker.url,)))
    assert broker.taken == [...]

It knows CONNECT, SEND, BEGIN, COMMIT, SUBSCRIBE, ACK, UNSUBSCRIBE and DISCONNECT with their
receipts. A destination is a queue, and a subscription gets one message at a time, or with `copies`
a topic. The fields of `FakeBroker` change this behaviour, and `send` and `drop` do more.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import NoReturn

from sam_pipeline.schema.net.stomp.frame import Frame as Frame
from sam_pipeline.schema.net.stomp.frame import FrameReader, encode
from tests.support.brokers.stand_in import HOST, POLL_S, StandIn
from tests.support.waiting import eventually

DRIP_S = 0.2
HANDSHAKE_S = 5.0
HEART_BEAT = "heart-beat"
"""The command of a received line end."""
ANY_SIZE = 1 << 40


@dataclass
class FakeBroker(StandIn):
    """Listens on a free port; `taken` has the SEND frames it accepted, in order."""

    server: str = "Fake/1.0"
    version: str = "1.2"
    heart_beat: str = "0,0"
    mute: bool = False
    """Reads everything and sends nothing."""
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
    forbidden: str = ""
    """The one destination to which that applies, unless it applies to all."""
    explains: str = ""
    """The body of that ERROR."""
    loses: bool = False
    """Confirms every SEND and delivers nothing."""
    copies: Callable[[int], int] | None = None
    """How often each subscription gets the nth message after it, without waiting for an ack."""
    tls: ssl.SSLContext | None = None
    """Speaks TLS with this certificate."""
    queue: list[Frame] = field(default_factory=list)
    """The messages that wait for a subscription, oldest first; an ACK removes one."""
    taken: list[Frame] = field(default_factory=list)
    received: list[Frame] = field(default_factory=list)
    """All frames, heart-beats included."""

    def __post_init__(self) -> None:
        self._conversations: list[_Conversation] = []
        self._heard = 0

    @property
    def url(self) -> str:
        return f"{'stomp+ssl' if self.tls else 'stomp'}://{HOST}:{self.port}"

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self.port

    @property
    def ids(self) -> list[str]:
        """The ids of the accepted messages."""
        return [frame.headers["samMessageId"] for frame in self.taken]

    @property
    def logins(self) -> list[Frame]:
        return self.all_of("CONNECT", "STOMP")

    @property
    def subscriptions(self) -> list[Frame]:
        return self.all_of("SUBSCRIBE")

    def all_of(self, *commands: str) -> list[Frame]:
        """The received frames with these commands."""
        return [frame for frame in self.received if frame.command in commands]

    def heard(self, command: str) -> Frame:
        """The next received frame with this command, once it arrives."""

        def arrived() -> Frame | None:
            while self._heard < len(self.received):
                self._heard += 1
                if self.received[self._heard - 1].command == command:
                    return self.received[self._heard - 1]
            return None

        frame = eventually(arrived, reason=command)
        assert frame
        return frame

    def send(self, command: str, body: str = "", **headers: str) -> None:
        """Send a frame over the newest connection; a header's `_` stands for `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.push(encode(command, named, body.encode()))

    def deliver(self, subscription: str, ack: str, body: str = "", **headers: str) -> None:
        """Send a MESSAGE over the newest connection."""
        ids = {"subscription": subscription, "ack": ack, "message-id": ack}
        self.send("MESSAGE", body, **{**ids, **headers})

    def push(self, data: bytes) -> None:
        """Send any bytes over the newest connection."""
        self._conversations[-1].push(data)

    def drop(self) -> None:
        """Close every connection."""
        for conversation in [*self._conversations]:
            with suppress(OSError):
                conversation.connection.shutdown(socket.SHUT_RDWR)

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
        if self.greeting:
            connection.sendall(self.greeting)
            self._stopping.wait()
        conversation = _Conversation(self, connection)
        self._conversations.append(conversation)
        try:
            for frame in self._frames(connection):
                self.received.append(frame)
                if not self.mute:
                    conversation.answer(frame)
        finally:
            self._conversations.remove(conversation)

    def _frames(self, connection: socket.socket) -> Iterator[Frame]:
        reader = FrameReader(ANY_SIZE, ANY_SIZE)
        for chunk in self._chunks(connection):
            if chunk == b"\n":
                yield Frame(HEART_BEAT, {})
            yield from (frame for frame in reader.feed(chunk) if isinstance(frame, Frame))


class _Conversation:
    """One connection, ended by StopIteration."""

    def __init__(self, broker: FakeBroker, connection: socket.socket) -> None:
        self._broker = broker
        self.connection = connection
        self._sending = threading.RLock()
        self._open: dict[str, list[Frame]] = {}
        self._subscription = ""
        self._auto_ack = False
        self._delivered = False
        self._count = 0

    def answer(self, frame: Frame) -> None:
        broker = self._broker
        if frame.command in ("CONNECT", "STOMP"):
            if broker.refuses_login:
                self._refuse(broker.refuses_login)
            facts = {"server": broker.server, "version": broker.version}
            self._say("CONNECTED", {**facts, "heart-beat": broker.heart_beat})
        elif frame.command == "SEND":
            self._take(frame)
        elif frame.command == "BEGIN":
            self._open[frame.headers["transaction"]] = []
        elif frame.command == "COMMIT":
            broker.taken += self._open.pop(frame.headers["transaction"])
        elif frame.command == "SUBSCRIBE":
            self._subscribe(frame)
        elif frame.command == "ACK" and broker.queue:
            broker.queue.pop(0)
            self._delivered = False
        if "receipt" in frame.headers and not broker.eats_receipts:
            self._say("RECEIPT", {"receipt-id": frame.headers["receipt"]})
        if frame.command == "DISCONNECT":
            raise StopIteration
        if self._subscription and broker.queue and not self._delivered:
            self._delivered = not self._auto_ack
            self._deliver(broker.queue.pop(0) if self._auto_ack else broker.queue[0])

    def copy(self, frame: Frame, copies: Callable[[int], int]) -> None:
        with self._sending:
            self._count += bool(self._subscription)
            for _ in range(copies(self._count) if self._subscription else 0):
                self._deliver(frame, self._count)

    def push(self, data: bytes) -> None:
        with self._sending:  # frames must not be mixed
            self._broker._say(self.connection, data, DRIP_S if self._broker.drips else 0.0)

    def _take(self, frame: Frame) -> None:
        broker = self._broker
        count = len(broker.taken) + sum(map(len, self._open.values()))
        if count == broker.drops_after:
            self._end_after_receipts()
        if count == broker.freezes_after:
            broker._stopping.wait()
            raise StopIteration
        if broker.floods and not broker.taken:
            self.push(b"\n" * broker.floods)
        if error := broker.rejects(frame):
            self._refuse(error)
        transaction = frame.headers.get("transaction")
        (self._open[transaction] if transaction else broker.taken).append(frame)
        if broker.copies:
            for conversation in [*broker._conversations]:
                conversation.copy(frame, broker.copies)
        elif self._subscription and not broker.loses:
            broker.queue.append(frame)

    def _subscribe(self, frame: Frame) -> None:
        broker = self._broker
        if broker.forbids_subscribing and broker.forbidden in ("", frame.headers["destination"]):
            self._refuse(broker.forbids_subscribing, broker.explains)
        self._subscription = frame.headers["id"]
        self._auto_ack = frame.headers.get("ack", "auto") == "auto"

    def _deliver(self, sent: Frame, number: int = 1) -> None:
        ids = {"subscription": self._subscription, "message-id": f"m-{number}"}
        self._say("MESSAGE", {**sent.headers, **ids, "ack": f"a-{number}"}, sent.body)

    def _refuse(self, message: str, body: str = "") -> NoReturn:
        self._say("ERROR", {"message": message}, body.encode())
        raise StopIteration

    def _end_after_receipts(self) -> NoReturn:
        """Close only after reading everything: unread bytes would turn the close into a reset."""
        self.connection.shutdown(socket.SHUT_WR)
        for _ in self._broker._chunks(self.connection):
            pass
        raise StopIteration

    def _say(self, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        self.push(encode(command, headers, body))


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
