"""One STOMP connection, from CONNECT to DISCONNECT, on one thread.

The thread reads, hands over all messages of a piece at once, and sends acks and heart-beats. It
reads no further while the inbox has no room: then the broker waits.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from sam_pipeline.consumer.core.inbox import Delivery, Inbox
from sam_pipeline.consumer.errors import SessionLost, SubscriptionRefused
from sam_pipeline.consumer.sources.broker_dialects import BrokerHabits, habits_of, subscribe_headers
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.messages.foreign import Stamp
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.channel import Channel, connect, words_of
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp_frame import Frame, FrameError, FrameReader, encode

VERSION = "1.2"
CONNECT_S = 5.0
REPLY_S = 15.0
"""How long a broker may take for an answer, or to take our bytes."""
GOODBYE_S = 2.0
LAST_WORDS_S = 0.5
TICK_S = 0.5
ROOM_S = 0.05
"""How often a session without room looks whether there is some."""
SILENT_BEATS = 2.5
"""So many heart-beats without a sign of life, and the connection counts as lost."""
RECEIVE_BYTES = 1024 * 1024
MAX_BODY_BYTES = 128 * 1024 * 1024
"""More than any of the brokers carries in a frame by default."""

# Only valid inside the connection that delivered the message; the destination stays, for people
# who look at a dead letter.
SESSION_HEADERS = (
    *("ack", "content-length", "message-id", "receipt", "redelivered", "subscription"),
    "transaction",
)

Address = tuple[str, int]
Secure = Callable[[Channel], Channel]
"""Puts TLS around a connection; raises OSError or ConfigError in words."""


@dataclass(frozen=True)
class Login:
    """What CONNECT says; `client_id` makes the durable subscription ours."""

    client_id: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def headers(self) -> dict[str, str]:
        given = {"login": self.user, "passcode": self.password}
        known = {name: value for name, value in given.items() if value is not None}
        # RabbitMQ refuses the host's name as that of a virtual host; the others do not look.
        return {"accept-version": VERSION, "host": "/", "client-id": self.client_id, **known}


class Subscription(NamedTuple):
    """A destination, what its messages are that don't say it, and how many may be under way.

    Shared: the broker gives each message to one of all who subscribe under our name.
    """

    destination: str
    stamp: Stamp
    prefetch: int
    shared: bool = False
    durable: bool = True
    """The broker keeps what comes while we are away; else it ends with the connection."""


class StompSession:
    """Use from one thread: `open`, `subscribe`, `serve`; each may raise SessionLost; `close`.

    Only `ack` is for another one, that which loads.
    """

    def __init__(
        self, broker: str, inbox: Inbox, reply_s: float = REPLY_S, heart_beat_s: float = 10.0
    ) -> None:
        self.broker = broker
        self._inbox = inbox
        self._reply_s = reply_s
        self._heart_beat_ms = int(heart_beat_s * 1000)
        self._reader = FrameReader(max_body_bytes=MAX_BODY_BYTES)
        self._channel: Channel | None = None
        self._habits: BrokerHabits | None = None
        self._stamps: dict[str, Stamp] = {}
        self._replies: deque[Frame] = deque()
        self._acks: deque[dict[str, str]] = deque()
        """Of a batch each: the last one by subscription, in order."""
        self._acks_due = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._transactions = 0
        self._lost = ""
        self._refused = False
        """By an ERROR frame."""
        self._send_every_s = self._hear_every_s = 0.0
        self._sent_at = self._heard_at = 0.0

    def open(self, address: Address, login: Login, secure: Secure | None = None) -> None:
        """Connect, over TLS if `secure` is given, and log in."""
        try:
            channel = connect(*address, Deadline.after(CONNECT_S))
            self._channel = secure(channel) if secure else channel
        except (OSError, ConfigError) as error:
            raise SessionLost(words_of(error)) from error
        # A broker that waits until we read what it says takes no bytes before.
        self._channel.arrived = self._arrived
        beats = f"{self._heart_beat_ms},{self._heart_beat_ms}"
        self._send("CONNECT", {**login.headers(), "heart-beat": beats})
        self._learn(self._reply("CONNECTED").headers)

    def subscribe(self, consumer: str, subscriptions: Sequence[Subscription]) -> None:
        """Returns when the broker confirmed all of them; may raise SubscriptionRefused."""
        assert self._habits is not None, "open() comes first"
        for number, each in enumerate(subscriptions):
            destination, stamp, prefetch, shared, durable = each
            self._stamps[str(number)] = stamp
            ours = {"id": str(number), "ack": "client", "receipt": destination}
            wanted = subscribe_headers(
                self._habits, consumer, destination, prefetch, shared, durable
            )
            self._send("SUBSCRIBE", {**wanted, **ours})
            try:
                self._reply("RECEIPT")
            except SessionLost as loss:
                if not self._refused:
                    raise
                raise SubscriptionRefused(destination, str(loss)) from loss

    def unsubscribe(self) -> None:
        """From the first one, if it is not durable; what was not acked is given back."""
        self._send("UNSUBSCRIBE", {"id": "0", "receipt": "unsubscribed"})
        self._reply("RECEIPT")

    def send(self, message: Message, destination: str) -> None:
        """Returns when the broker confirmed it."""
        ours = {"destination": destination, "receipt": "sent"}
        self._send("SEND", {**message.headers, **ours}, message.body)
        self._reply("RECEIPT")

    @property
    def refused(self) -> bool:
        """Whether the session was lost because the broker said no, by an ERROR frame."""
        return self._refused

    def serve(self, stop: threading.Event, at_most_s: float = math.inf) -> None:
        """Deliver, ack and keep alive until told to stop; acks given before that are sent."""
        ends_at = time.monotonic() + at_most_s
        while not stop.is_set() and time.monotonic() < ends_at:
            self._turn()
            self._acknowledge()
            self._keep_alive(time.monotonic())
        self._acknowledge()

    def close(self) -> None:
        """DISCONNECT, wait a little for its receipt, and let go in any case."""
        if self._channel and not self._lost:
            with suppress(SessionLost):
                self._send("DISCONNECT", {"receipt": "goodbye"})
                self._reply("RECEIPT", min(GOODBYE_S, self._reply_s))
        if self._channel:
            self._channel.close()
        self._lost = self._lost or "we closed the connection"

    def __del__(self) -> None:
        os.close(self._acks_due)  # only now can no ack come any more

    # Reading -----------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Read what has come, or wait a little for it, for acks to send or for room."""
        assert self._channel is not None
        if not self._inbox.has_room:
            self._heard_at = time.monotonic()  # it is we who do not listen
            self._sleep([self._acks_due], ROOM_S)
        elif self._channel.has_arrived():
            try:
                self._receive(Deadline.after(self._reply_s))
            except TimeoutError as error:  # a part of a TLS record, and no more
                raise self._loss(words_of(error)) from error
        elif not self._acks:
            self._sleep([self._acks_due, self._channel.socket.fileno()], TICK_S)

    def _sleep(self, files: Sequence[int], timeout_s: float) -> None:
        ready = select.poll()
        for file in files:
            ready.register(file, select.POLLIN)
        ready.poll(timeout_s * 1000)

    def _receive(self, deadline: Deadline) -> None:
        """Raises TimeoutError where nothing came."""
        assert self._channel is not None
        self._channel.deadline = deadline
        try:
            data = self._channel.receive(RECEIVE_BYTES)
        except TimeoutError:
            raise
        except OSError as error:
            raise self._loss(words_of(error)) from error
        self._take(data)

    def _arrived(self, data: bytes) -> None:
        """What comes in while the broker takes no bytes."""
        try:
            self._take(data)
        except SessionLost as loss:
            raise ConnectionAbortedError(str(loss)) from loss

    def _take(self, data: bytes) -> None:
        if not data:
            raise self._loss("the broker closed the connection")
        self._heard_at = time.monotonic()
        deliveries: list[Delivery] = []
        try:
            for frame in self._reader.feed(data):
                if frame.command == "MESSAGE":
                    deliveries.append(self._delivery(frame))
                elif frame.command == "ERROR":
                    # Some brokers go on after it; then nobody knows what they did with our frame.
                    self._refused = True
                    raise self._loss(_error_words(frame))
                else:
                    self._replies.append(frame)
        except FrameError as error:
            raise self._loss(str(error)) from error
        if deliveries:
            self._inbox.put(deliveries)

    def _delivery(self, frame: Frame) -> Delivery:
        assert self._habits is not None
        headers: dict[str, str] = frame.headers  # made for us alone
        try:
            subscription_id, ack_id = headers["subscription"], headers[self._habits.ack_id]
            stamp = self._stamps[subscription_id]
        except KeyError as error:
            raise self._loss(f"a MESSAGE without a known {error}") from None
        for name in SESSION_HEADERS:
            headers.pop(name, None)
        message = stamp.stamped(Message(headers, frame.body))
        return Delivery(message, self, (subscription_id, ack_id))

    # Acks --------------------------------------------------------------------------------------

    def ack(self, tokens: Sequence[tuple[str, str]]) -> None:
        """On the thread that loads; all in order, which is that of the deliveries."""
        last: dict[str, str] = {}
        for subscription_id, ack_id in tokens:
            last.pop(subscription_id, None)
            last[subscription_id] = ack_id
        self._acks.append(last)
        os.eventfd_write(self._acks_due, 1)

    def _acknowledge(self) -> None:
        """The last ack of each subscription, in the order of delivery: acks are cumulative.

        On RabbitMQ across subscriptions, too: there any other order would ack twice.
        """
        with suppress(BlockingIOError):
            os.eventfd_read(self._acks_due)
        while self._acks:
            self._push(self._ack_frames(self._acks.popleft()))

    def _ack_frames(self, last: Mapping[str, str]) -> bytes:
        assert self._habits is not None
        transaction: dict[str, str] = {}
        if self._habits.acks_in_transaction:
            self._transactions += 1
            transaction = {"transaction": f"ack-{self._transactions}"}
        frames = [encode("ACK", {"id": ack_id, **transaction}) for ack_id in last.values()]
        if transaction:
            frames = [encode("BEGIN", transaction), *frames, encode("COMMIT", transaction)]
        return b"".join(frames)

    # Talking -----------------------------------------------------------------------------------

    def _learn(self, headers: Mapping[str, str]) -> None:
        version, server = headers.get("version", "1.0"), headers.get("server", "")
        if version != VERSION:
            raise self._loss(f"it speaks STOMP {version}, not {VERSION}")
        self._habits = habits_of(server)
        if self._habits is None:
            raise self._loss(f"a broker of a kind unknown here: {server or 'no server header'}")
        sends_ms, wants_ms = _heart_beat(headers)
        # Twice as often as agreed: a late one costs the connection.
        self._send_every_s = max(wants_ms, self._heart_beat_ms) / 2000 if wants_ms else 0.0
        self._hear_every_s = max(sends_ms, self._heart_beat_ms) / 1000 if sends_ms else 0.0

    def _keep_alive(self, now: float) -> None:
        silent_s = now - self._heard_at
        if self._hear_every_s and silent_s > SILENT_BEATS * self._hear_every_s:
            raise self._loss(f"no sign of life for {silent_s:.1f} s")
        if self._send_every_s and now - self._sent_at > self._send_every_s:
            self._push(b"\n")

    def _send(self, command: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        try:
            self._push(encode(command, headers, body))
        except ValueError as error:  # a login that STOMP can't carry
            raise self._loss(str(error)) from error

    def _push(self, frames: bytes) -> None:
        assert self._channel is not None
        self._channel.deadline = Deadline.after(self._reply_s)
        try:
            self._channel.send(frames)
        except OSError as error:
            raise self._loss(self._last_words() or words_of(error)) from error
        self._sent_at = time.monotonic()

    def _last_words(self) -> str:
        """What the broker said before it let go, which tells more than that it did."""
        assert self._channel is not None
        self._channel.deadline = Deadline.after(LAST_WORDS_S)
        try:
            self._take(self._channel.receive(RECEIVE_BYTES))
        except SessionLost as loss:
            return str(loss)
        except TimeoutError:
            return ""
        except OSError as error:
            return words_of(error)
        return ""

    def _reply(self, command: str, timeout_s: float | None = None) -> Frame:
        """The frame that is due."""
        timeout_s = timeout_s or self._reply_s
        deadline = Deadline.after(timeout_s)
        try:
            while not self._replies:
                self._receive(deadline)
        except TimeoutError:
            raise self._loss(f"no {command} within {timeout_s:g} s") from None
        reply = self._replies.popleft()
        if reply.command != command:
            raise self._loss(f"{reply.command} instead of {command}")
        return reply

    def _loss(self, words: str) -> SessionLost:
        self._lost = self._lost or words
        return SessionLost(self._lost)


def _error_words(frame: Frame) -> str:
    """The broker's words: the header, and what the body adds to it on RabbitMQ.

    The others repeat themselves there, or add a stack trace.
    """
    message = frame.headers.get("message", "").strip().partition("\n")[0]
    body = frame.body.decode("utf-8", "replace").strip("\0\r\n ").partition("\n")[0]
    says_it_all = "Exception" in body or body.replace(":", "") in message.replace(":", "")
    words = message if message and says_it_all else ": ".join(filter(None, (message, body)))
    versions = frame.headers.get("version", VERSION)
    if VERSION not in versions.split(","):
        words = f"{words} (it speaks STOMP {versions}, not {VERSION})"
    return words or "ERROR without words"


def _heart_beat(headers: Mapping[str, str]) -> tuple[int, int]:
    """What the broker promises to send, and wants to hear, in ms; 0 for never."""
    sends, _, wants = headers.get("heart-beat", "0,0").partition(",")
    try:
        return int(sends), int(wants)
    except ValueError:
        return 0, 0
