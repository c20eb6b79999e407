"""The consumer's STOMP session, from CONNECT to DISCONNECT, on one thread.

The thread reads, puts all messages of a piece into the inbox at once, and sends acks and
heart-beats. It stops reading while the inbox has no room: then the broker waits.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from sam_pipeline.consumer.core.inbox import Delivery, Inbox
from sam_pipeline.consumer.errors import SubscriptionRefused
from sam_pipeline.consumer.sources.broker_dialects import dialect_of, subscribe_headers
from sam_pipeline.schema.messages.foreign import Stamp
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.channel import Channel, error_text
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp_frame import Frame, encode
from sam_pipeline.schema.net.stomp_session import SessionLost, StompSession

REPLY_S = 15.0
"""How long a broker may take to answer, or to take our bytes."""
LAST_WORDS_S = 0.5
TICK_S = 0.5
ROOM_S = 0.05
"""How often a session checks whether the inbox has room again."""
SILENT_BEATS = 2.5
"""After this many heart-beat intervals without a sign of life the connection counts as lost."""
RECEIVE_BYTES = 1024 * 1024
MAX_BODY_BYTES = 128 * 1024 * 1024
"""More than any of the brokers carries in a frame by default."""

# Only valid inside the connection that delivered the message; the destination stays, for people
# who look at a dead letter.
SESSION_HEADERS = (
    *("ack", "content-length", "message-id", "receipt", "redelivered", "subscription"),
    "transaction",
)


@dataclass(frozen=True)
class Login:
    """What CONNECT says; `client_id` makes the durable subscription ours."""

    client_id: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def headers(self) -> dict[str, str | None]:
        return {"client-id": self.client_id, "login": self.user, "passcode": self.password}


class Subscription(NamedTuple):
    """A destination, what its messages are that do not say it, and how many may be unacked.

    Shared: the broker gives each message to one of all who subscribe under our name.
    """

    destination: str
    stamp: Stamp
    prefetch: int
    shared: bool = False


class ConsumingSession(StompSession):
    """Connected and logged in. Use from one thread: `subscribe`, `serve`, each of which may raise
    SessionLost, and `close`.

    Only `ack` is for another thread, the one that loads.
    """

    def __init__(
        self,
        channel: Channel,
        broker: str,
        inbox: Inbox,
        login: Login,
        reply_s: float = REPLY_S,
        heart_beat_s: float = 10.0,
    ) -> None:
        self._acks_due = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        super().__init__(channel, RECEIVE_BYTES, MAX_BODY_BYTES)
        self.broker = broker
        self._inbox = inbox
        self._reply_s = reply_s
        self._stamps: dict[str, Stamp] = {}
        self._acks: deque[dict[str, str]] = deque()
        """The last ack id of each subscription, one entry per batch, oldest first."""
        self._transactions = 0
        self._sent_at = self._heard_at = time.monotonic()
        try:
            heart_beat_ms = int(heart_beat_s * 1000)
            headers = {**login.headers(), "heart-beat": f"{heart_beat_ms},{heart_beat_ms}"}
            answer = self.log_in(headers, Deadline.after(reply_s))
            self._dialect = dialect_of(answer.get("server", ""))
        except BaseException:
            self.drop()
            raise
        sends, _, wants = answer.get("heart-beat", "0,0").partition(",")
        try:  # how often the broker will send, and wants to hear, in ms; 0 for never
            sends_ms, wants_ms = int(sends), int(wants)
        except ValueError:
            sends_ms, wants_ms = 0, 0
        # Twice as often as agreed: a late one costs the connection.
        self._send_every_s = max(wants_ms, heart_beat_ms) / 2000 if wants_ms else 0.0
        self._hear_every_s = max(sends_ms, heart_beat_ms) / 1000 if sends_ms else 0.0

    def subscribe(self, consumer: str, subscriptions: Sequence[Subscription]) -> None:
        """Returns when the broker confirmed all of them; may raise SubscriptionRefused."""
        for number, (destination, stamp, prefetch, shared) in enumerate(subscriptions):
            self._stamps[str(number)] = stamp
            headers = subscribe_headers(self._dialect, consumer, destination, prefetch, shared)
            headers |= {"id": str(number), "ack": "client"}
            try:
                self.ask("SUBSCRIBE", headers, Deadline.after(self._reply_s))
            except SessionLost as loss:
                if not loss.by_error:
                    raise
                raise SubscriptionRefused(destination, str(loss)) from loss

    def serve(self, stop: threading.Event, at_most_s: float = math.inf) -> None:
        """Deliver, ack and keep alive until `stop` is set; acks given before that are sent."""
        ends_at = time.monotonic() + at_most_s
        while not stop.is_set() and time.monotonic() < ends_at:
            if not self._inbox.has_room:
                self._heard_at = time.monotonic()  # it is we who do not listen
                self._sleep([self._acks_due], ROOM_S)
            elif self._channel.has_arrived():
                try:
                    self.receive(Deadline.after(self._reply_s))
                except TimeoutError as error:  # a part of a TLS record, and no more
                    raise self.lose(error_text(error)) from error
            elif not self._acks:  # wait a little for bytes, or for acks to send
                self._sleep([self._acks_due, self._channel.socket.fileno()], TICK_S)
            if self._loss:
                raise self._loss
            self._acknowledge()
            now = time.monotonic()
            silent_s = now - self._heard_at
            if self._hear_every_s and silent_s > SILENT_BEATS * self._hear_every_s:
                raise self.lose(f"no sign of life for {silent_s:.1f} s")
            if self._send_every_s and now - self._sent_at > self._send_every_s:
                self._push(b"\n")
        self._acknowledge()

    def ack(self, tokens: Sequence[tuple[str, str]]) -> None:
        """On the thread that loads; all in order, which is that of the deliveries."""
        last: dict[str, str] = {}
        for subscription_id, ack_id in tokens:
            last.pop(subscription_id, None)
            last[subscription_id] = ack_id
        self._acks.append(last)
        os.eventfd_write(self._acks_due, 1)

    def __del__(self) -> None:
        os.close(self._acks_due)  # only now can no ack come any more

    def _sleep(self, files: Sequence[int], timeout_s: float) -> None:
        ready = select.poll()
        for file in files:
            ready.register(file, select.POLLIN)
        ready.poll(timeout_s * 1000)

    def _take(self, data: bytes) -> None:
        self._heard_at = time.monotonic()
        super()._take(data)

    def _deliver(self, messages: Sequence[Frame]) -> None:
        self._inbox.put([self._delivery(frame) for frame in messages])

    def _delivery(self, frame: Frame) -> Delivery:
        headers: dict[str, str] = frame.headers  # made for us alone
        try:
            subscription_id, ack_id = headers["subscription"], headers[self._dialect.ack_id]
            stamp = self._stamps[subscription_id]
        except KeyError as error:
            raise self.lose(f"a MESSAGE without a known {error}") from None
        for name in SESSION_HEADERS:
            headers.pop(name, None)
        message = stamp.stamped(Message(headers, frame.body))
        return Delivery(message, self, (subscription_id, ack_id))

    def _acknowledge(self) -> None:
        """Send the last ack of each subscription, in the order of delivery: acks are cumulative.

        On RabbitMQ across subscriptions, too: there any other order would ack twice.
        """
        with suppress(BlockingIOError):
            os.eventfd_read(self._acks_due)
        while self._acks:
            last = self._acks.popleft()
            transaction: dict[str, str] = {}
            if self._dialect.acks_in_transaction:
                self._transactions += 1
                transaction = {"transaction": f"ack-{self._transactions}"}
            frames = [encode("ACK", {"id": ack_id, **transaction}) for ack_id in last.values()]
            if transaction:
                frames = [encode("BEGIN", transaction), *frames, encode("COMMIT", transaction)]
            self._push(b"".join(frames))

    def _push(self, frames: bytes) -> None:
        self.send(frames, Deadline.after(self._reply_s))
        if self._send_failure:
            with suppress(TimeoutError):  # what the broker said before it closed says more
                self.receive(Deadline.after(LAST_WORDS_S))
            raise self.lose(self._send_failure)
        self._sent_at = time.monotonic()
