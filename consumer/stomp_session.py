"""One STOMP connection, from CONNECT to DISCONNECT: everything that touches stomp.py.

stomp.py reads frames on a thread of its own, which here only puts things on queues. All that is
sent, acks and heart-beats included, is sent by the session's owner. Waits, heart-beats and the
socket are ours: those of stomp.py wait for ever, or leave the connection half dead.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import stomp

from consumer.broker_habits import BrokerHabits, habits_of, subscribe_headers
from consumer.errors import SessionLost
from consumer.inbox import Delivery, Inbox
from schema.message import Message

CONNECT_S = 5.0
REPLY_S = 15.0
GOODBYE_S = 2.0
TICK_S = 0.5
HEART_BEAT_MS = 10_000
SILENT_BEATS = 2.5
"""So many heart-beats without a sign of life, and the connection counts as lost."""
SEND_TIMEOUT_MS = 15_000
"""TCP_USER_TIMEOUT: ends a send to a broker that no longer takes bytes."""
ROOM_S = 1.0
"""How often a listener that waits for room looks whether it still should."""

# Only valid inside the connection that delivered the message; the destination stays, for people
# who look at a dead letter.
SESSION_HEADERS = frozenset(
    {"ack", "content-length", "message-id", "receipt", "redelivered", "subscription", "transaction"}
)

# It logs each failed send with a traceback; SessionLost says the same in words.
logging.getLogger("stomp.py").disabled = True

Address = tuple[str, int]


@dataclass(frozen=True)
class Login:
    """What CONNECT says; `client_id` makes the durable subscription ours."""

    client_id: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def headers(self) -> dict[str, str]:
        beats = f"{HEART_BEAT_MS},{HEART_BEAT_MS}"
        return {"client-id": self.client_id, "heart-beat": beats}


class Subscription(NamedTuple):
    """A destination, the class of its messages that name none, and how many may be under way."""

    destination: str
    message_class: str | None
    prefetch: int


@dataclass(frozen=True, slots=True)
class _Ack:
    subscription_id: str
    ack_id: str


class StompSession:
    """Use from one thread: `open`, `subscribe`, `serve`; each may raise SessionLost; `close`."""

    def __init__(self, broker: str, inbox: Inbox, reply_s: float = REPLY_S) -> None:
        self._listener = _Listener(broker, self, inbox)
        self._reply_s = reply_s
        self._habits: BrokerHabits | None = None
        self._transactions = 0
        self._send_every_s = 0.0
        self._hear_every_s = 0.0
        self._sent_at = 0.0
        self._connection: Any = stomp.StompConnection12(
            vhost="/",  # RabbitMQ refuses the host name; the others do not look
            auto_decode=False,
        )
        self._connection.set_listener("session", self._listener)

    def open(self, address: Address, login: Login) -> None:
        """Connect and log in."""
        # A transport that has a socket does not connect by itself: it would hide the reason of
        # a failure, and know no deadline.
        transport = self._connection.transport
        transport.socket = _open_socket(address)
        transport.current_host_and_port = address
        self._listener.heard()
        try:
            self._connection.connect(login.user, login.password, headers=login.headers())
        except Exception as error:
            raise SessionLost(f"CONNECT: {error}") from error
        self._learn(self._reply("CONNECTED"))

    def subscribe(self, consumer: str, subscriptions: Sequence[Subscription]) -> None:
        """Returns when the broker confirmed all of them."""
        assert self._habits is not None, "open() comes first"
        for number, (destination, message_class, prefetch) in enumerate(subscriptions):
            self._listener.default_class[str(number)] = message_class
            ours = {"destination": destination, "id": str(number), "ack": "client"}
            habits = subscribe_headers(self._habits, consumer, destination, prefetch)
            self._send("SUBSCRIBE", {**habits, **ours, "receipt": destination})
            self._reply("RECEIPT")

    def serve(self, stop: threading.Event) -> None:
        """Send acks and heart-beats until told to stop; acks given before that are sent."""
        while True:
            stopping = stop.is_set()
            self._acknowledge(self._acks_due())
            if stopping:
                return
            self._keep_alive(time.monotonic())

    def close(self) -> None:
        """DISCONNECT, wait a little for its receipt, and let go in any case."""
        self._listener.closing = True
        with suppress(SessionLost):
            self._send("DISCONNECT", {"receipt": "goodbye"})
            self._reply("RECEIPT", min(GOODBYE_S, self._reply_s))
        with suppress(AttributeError, OSError):  # the reading thread may be closing it, too
            self._connection.transport.disconnect_socket()

    def _learn(self, headers: Mapping[str, str]) -> None:
        server = headers.get("server", "")
        self._habits = habits_of(server)
        if self._habits is None:
            raise SessionLost(f"a broker of a kind unknown here: {server or 'no server header'}")
        sends_ms, wants_ms = _heart_beat(headers)
        # Twice as often as agreed: a late one costs the connection.
        self._send_every_s = max(wants_ms, HEART_BEAT_MS) / 2000 if wants_ms else 0.0
        self._hear_every_s = max(sends_ms, HEART_BEAT_MS) / 1000 if sends_ms else 0.0

    def _acks_due(self) -> dict[str, str]:
        """The last ack of each subscription, in the order of delivery: acks are cumulative.

        On RabbitMQ across subscriptions, too: there any other order would ack twice.
        """
        last: dict[str, str] = {}
        with suppress(queue.Empty):
            ack = self._listener.acks.get(timeout=TICK_S)
            while True:
                last.pop(ack.subscription_id, None)
                last[ack.subscription_id] = ack.ack_id
                ack = self._listener.acks.get_nowait()
        return last

    def _acknowledge(self, acks: Mapping[str, str]) -> None:
        """One transaction: on ActiveMQ ten times the rate of bare cumulative acks."""
        if not acks:
            return
        self._transactions += 1
        transaction = {"transaction": f"ack-{self._transactions}"}
        self._send("BEGIN", transaction)
        for ack_id in acks.values():
            self._send("ACK", {"id": ack_id, **transaction})
        self._send("COMMIT", transaction)

    def _keep_alive(self, now: float) -> None:
        if self._listener.lost:
            raise SessionLost(self._listener.lost)
        silent_s = now - self._listener.heard_at
        if self._hear_every_s and silent_s > SILENT_BEATS * self._hear_every_s:
            raise SessionLost(f"no sign of life for {silent_s:.0f} s")
        if self._send_every_s and now - self._sent_at > self._send_every_s:
            self._send(None, {})

    def _send(self, command: str | None, headers: Mapping[str, str]) -> None:
        """`command` None is a heart-beat."""
        try:
            self._connection.send_frame(command, dict(headers))
        except Exception as error:  # of stomp.py, of the socket, of one closing the other
            reason = self._listener.lost or str(error) or "the connection is closed"
            raise SessionLost(reason) from error
        self._sent_at = time.monotonic()

    def _reply(self, command: str, timeout_s: float | None = None) -> Mapping[str, str]:
        """The headers of the frame that is due."""
        timeout_s = timeout_s or self._reply_s
        try:
            reply = self._listener.replies.get(timeout=timeout_s)
        except queue.Empty:
            raise SessionLost(f"no {command} within {timeout_s:g} s") from None
        if reply.command != command:
            raise SessionLost(self._listener.lost or f"{reply.command} instead of {command}")
        return reply.headers


@dataclass(frozen=True, slots=True)
class _Reply:
    command: str
    headers: Mapping[str, str]


class _Listener:
    """What stomp.py's thread calls; nothing here works, waits on a lock for long, or fails."""

    def __init__(self, broker: str, session: StompSession, inbox: Inbox) -> None:
        self._broker = broker
        self._session = session
        self._inbox = inbox
        self.default_class: dict[str, str | None] = {}
        self.acks: queue.SimpleQueue[_Ack] = queue.SimpleQueue()
        self.replies: queue.SimpleQueue[_Reply] = queue.SimpleQueue()
        self.heard_at = 0.0
        self.lost = ""
        self.closing = False

    def heard(self) -> None:
        self.heard_at = time.monotonic()

    def on_connected(self, frame: Any) -> None:
        self.heard()
        self.replies.put(_Reply("CONNECTED", frame.headers))

    def on_receipt(self, frame: Any) -> None:
        self.heard()
        self.replies.put(_Reply("RECEIPT", frame.headers))

    def on_heartbeat(self) -> None:
        self.heard()

    def on_message(self, frame: Any) -> None:
        try:
            delivery = self._delivery(frame.headers, frame.body)
            while not self.closing and not self._inbox.put(delivery, ROOM_S):
                self.heard()  # not heard because we do not listen
            self.heard()
        except Exception as error:  # stomp.py would only close the connection
            self._inbox.fail(error)

    def on_error(self, frame: Any) -> None:
        # Some brokers go on after an ERROR; then nobody knows what they did with our frame.
        words = frame.headers.get("message") or bytes(frame.body).decode("utf-8", "replace")
        self._lose(words.strip().split("\n")[0] or "ERROR without words")

    def on_disconnected(self) -> None:
        self._lose("the broker closed the connection")

    def _lose(self, text: str) -> None:
        self.lost = self.lost or text
        self.replies.put(_Reply("ERROR", {}))

    def _delivery(self, headers: Mapping[str, str], body: bytes) -> Delivery:
        subscription_id = headers["subscription"]
        kept = {key: value for key, value in headers.items() if key not in SESSION_HEADERS}
        message = Message(kept, body).with_default_class(self.default_class[subscription_id])
        ack = partial(self.acks.put, _Ack(subscription_id, headers["ack"]))
        return Delivery(message, self._broker, self._session, ack)


def _open_socket(address: Address) -> socket.socket:
    try:
        connected = socket.create_connection(address, CONNECT_S)
    except OSError as error:
        raise SessionLost(str(error.strerror or error).lower()) from error
    connected.settimeout(None)  # stomp.py takes a timeout for the end of the connection
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SEND_TIMEOUT_MS)
    return connected


def _heart_beat(headers: Mapping[str, str]) -> tuple[int, int]:
    """What the broker promises to send, and wants to hear, in ms; 0 for never."""
    sends, _, wants = headers.get("heart-beat", "0,0").partition(",")
    try:
        return int(sends), int(wants)
    except ValueError:
        return 0, 0
