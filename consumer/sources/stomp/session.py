"""A STOMP session of the consumer, from CONNECT to DISCONNECT, in one thread.

The thread reads from the socket, puts all messages of one read into the inbox, and sends acks and
heart-beats. It stops reading while the inbox has no room, and then the broker waits.
"""

from __future__ import annotations

import math
import os
import secrets
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ssl import SSLContext
from types import MappingProxyType
from typing import NamedTuple

from sam_pipeline.consumer.core.inbox import NO_LIMIT, Delivery, Inbox
from sam_pipeline.consumer.errors import SubscriptionRefused
from sam_pipeline.consumer.sources.signatures import SignatureCheck
from sam_pipeline.consumer.sources.stomp.dialects import (
    BrokerDialect,
    dialect_of,
    subscribe_headers,
)
from sam_pipeline.consumer.sources.stomp.records import BrokerRecords
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.identity import (
    ANONYMOUS,
    IDENTITY,
    broker_identity,
    established_identity,
)
from sam_pipeline.schema.messages.foreign import Stamp
from sam_pipeline.schema.messages.headers import ours_among
from sam_pipeline.schema.messages.message import KEY_NAME, Message
from sam_pipeline.schema.messages.refused import (
    BAD_FRAME,
    MARKS,
    REFUSED_TEXT,
    TOO_LARGE,
    mark_refused,
)
from sam_pipeline.schema.net.broker import Broker, Proxy, TlsFiles
from sam_pipeline.schema.net.channel import (
    Channel,
    Resolver,
    by_family,
    error_text,
    open_connection,
)
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.frame import MAX_HEAD_BYTES, Fault, Frame, FrameReader, encode
from sam_pipeline.schema.net.stomp.session import VIRTUAL_HOST, NoAnswer, SessionLost, StompSession
from sam_pipeline.schema.net.tls import secure
from sam_pipeline.schema.records.normalise import Limits

CONNECT_S = 5.0
LOOK_UP_TIMEOUT_S = 15.0
REPLY_S = 15.0
"""The time limit for a broker to answer, or to read what we send."""
LAST_READ_S = 0.5
"""How long to read from a closed connection, which may contain an ERROR frame."""
TICK_S = 0.5
"""How long a session sleeps when there is nothing to read or send."""
ROOM_S = 0.05
"""How often a session checks whether the inbox has room again."""
SILENT_BEATS = 2.5
"""The heart-beat intervals without a sign of life after which the connection is lost."""
PAUSE_S = 1.0
"""A line end that arrives by itself after as long may be a heart-beat, or a part of a body."""
LONGEST_ANSWER = 100
"""The last bytes that arrived, which may be the beginning of an answer."""
GOODBYE_S = 2.0
"""How long to wait until a broker has read our last acks."""
QUIET_S = 60.0
"""A subscription of a broker that falls silent is renewed after this time without a message."""
RECEIVE_BYTES = 1024 * 1024
HEART_BEATS = (b"\n", b"\r\n")
LEFT = "its messages can't be stored now, so they stay with the broker"
OTHER_HEADERS = (
    "the queue was made with other headers: restore them, or stop the daemon when the queue is"
    " empty, and delete it (`sam-consume subscription delete`; a /queue/ with the broker's tools)"
)
LONGEST_KEY = 255
"""The characters of a message id that identify an unreadable frame."""

MAX_MESSAGE_BYTES = Limits().max_message_bytes

Address = tuple[str, int]

_NOT_SUBSCRIBED = Stamp()
_NO_TOKEN = ("", "")
"""The token of a message without an ack id; acks are cumulative, so the next message acks it."""

# These are valid only within the connection that delivered the message, or not for a publisher to
# set. The destination is kept for people who look at a dead letter.
SESSION_HEADERS = (
    *("ack", "content-length", "message-id", "receipt", "redelivered", "subscription"),
    "transaction",
)


class Subscription(NamedTuple):
    """A destination, and the headers for messages that lack them.

    `prefetch`: the limit on unacked messages, if not that of the broker's dialect. `shared`: the
    broker gives each message to only one of the processes that use our name. `headers`: those of
    SUBSCRIBE that the configuration adds.
    """

    destination: str
    stamp: Stamp
    prefetch: int | None = None
    shared: bool = False
    headers: Mapping[str, str] = MappingProxyType({})


class ConsumingSession:
    """A session that is connected and logged in.

    A MESSAGE that is malformed or too large is delivered as a marked message. If its end is not
    known, the session ends when everything delivered before is acked; the last of several attempts
    delivers as much of it as there is.

    `subscribe`, `serve` and `close` are for one thread, and the first two may raise SessionLost.
    Only `ack` is for another thread, the main loop.
    """

    answers = False
    _gave_back = False
    _acks_due = -1
    """A descriptor, once the login has succeeded."""

    def __init__(
        self,
        channel: Channel,
        broker: str,
        inbox: Inbox,
        login: Mapping[str, str | None],
        settings: StompSettings,
    ) -> None:
        """`login`: the headers of CONNECT, as of `StompSettings.login`."""
        self._reader = FrameReader(max_body_bytes=settings.max_message_bytes, lenient=True)
        self._channel = channel
        self._session = StompSession(channel, self._reader.feed, RECEIVE_BYTES, self._take)
        self._settings = settings
        self._question = b""
        """What the broker was asked in the middle of a frame that may have ended."""
        self._tail = b""
        """The last bytes that have arrived since."""
        self._partial_since = 0.0
        """When a frame began that is incomplete; 0 if there is none."""
        self._received = 0
        """How many bytes of undelivered messages have arrived."""
        self._delivered = self._acked = 0
        """How many messages; one is counted by this thread and one by the main loop."""
        self.broker = broker
        self.batch_size = NO_LIMIT
        self._inbox = inbox
        self._stamps: dict[str, Stamp] = {}
        self._acks: deque[dict[str, str]] = deque()
        """The last ack id of each subscription, one entry per batch, oldest first."""
        self._transactions = 0
        self._delivered_at: dict[str, float] = {}
        """When each subscription began or last delivered a message."""
        self._sent_at = self._heard_at = time.monotonic()
        try:
            heart_beat_ms = int(settings.heart_beat_s * 1000)
            headers = {**login, "heart-beat": f"{heart_beat_ms},{heart_beat_ms}"}
            answer = self._session.log_in(headers, self._soon())
            self._dialect = dialect_of(answer.get("server", ""))
            self._ack_id = self._dialect.ack_id
            self._user_header = self._dialect.user_header if settings.vouches else ""
            if self._dialect.length_may_lie:
                self._reader.be_wary()
        except BaseException:
            self._session.drop()
            raise
        sends, _, wants = answer.get("heart-beat", "0,0").partition(",")
        try:  # how often the broker will send, and wants to hear, in ms; 0 for never
            sends_ms, wants_ms = int(sends), int(wants)
        except ValueError:
            sends_ms, wants_ms = 0, 0
        # Twice as often as agreed: a late one costs the connection.
        self._send_every_s = max(wants_ms, heart_beat_ms) / 2000 if wants_ms else 0.0
        self._hear_every_s = max(sends_ms, heart_beat_ms) / 1000 if sends_ms else 0.0
        # Last: the error of a failed login refers to the session until garbage is collected.
        self._acks_due = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def subscribe(
        self, subscriptions: Sequence[Subscription], records: BrokerRecords | None = None
    ) -> None:
        """Subscribe, and wait until the broker confirms; may raise SubscriptionRefused."""
        for number, subscription in enumerate(subscriptions):
            self._stamps[str(number)] = subscription.stamp
            self._delivered_at[str(number)] = time.monotonic()
            prefetch = subscription.prefetch or self._dialect.prefetch
            # The broker sends the second half of them while the first one is stored.
            self.batch_size = min(self.batch_size, max(prefetch // 2, 1))
            headers = self._subscribe_headers(subscription, prefetch)
            destination, _, _, shared, added = subscription
            for name in added:
                if name.lower().startswith(self._dialect.foreign_headers):  # it would ignore it
                    text = f"{self._dialect.kind} does not know the header {name}"
                    raise SubscriptionRefused(destination, f"{text}: remove it from headers")
            try:
                made = records and records.made(self._dialect, destination, shared, added)
                if records and made:
                    records.require_unchanged(made)
                self._session.ask("SUBSCRIBE", {**headers, "id": str(number)}, self._soon())
                if records and made:
                    records.add(made)
            except SessionLost as loss:
                if self._session.unreadable:
                    return  # by a message of an earlier subscription: `serve` waits for acks
                if not loss.by_error or isinstance(loss, SubscriptionRefused):
                    raise
                advice = f"; {OTHER_HEADERS}" if "inequivalent arg" in str(loss) else ""
                raise SubscriptionRefused(destination, f"{loss}{advice}") from loss

    def _subscribe_headers(self, subscription: Subscription, prefetch: int) -> dict[str, str]:
        """All headers of SUBSCRIBE but its `id`; a tap sends others."""
        destination, shared = subscription.destination, subscription.shared
        consumer = self._settings.consumer
        headers = subscribe_headers(self._dialect, consumer, destination, prefetch, shared)
        return {**headers, **subscription.headers, "ack": "client"}

    def serve(self, stop: threading.Event, max_s: float = math.inf) -> None:
        """Deliver, ack and send heart-beats until `stop` is set; acks due by then are sent.

        It also ends after `max_s`, or when a subscription has perhaps fallen silent for good.
        """
        session = self._session
        ends_at = time.monotonic() + max_s
        while not stop.is_set() and time.monotonic() < ends_at:
            if session.unreadable:
                if self._acked == self._delivered:
                    break
                self._heard_at = time.monotonic()
                self._sleep([self._acks_due], TICK_S)
            elif self._gave_back:
                raise SessionLost(LEFT)
            elif not self._inbox.has_room_for(self.broker):
                self._heard_at = time.monotonic()  # the broker may send, but we do not read
                self._sleep([self._acks_due], ROOM_S)
            elif self._channel.has_arrived():
                try:
                    session.receive(self._soon())
                except NoAnswer as error:  # a part of a TLS record arrived, but no more
                    raise session.lose(str(error)) from error
            elif not self._acks:  # wait a little for bytes, or for acks to send
                self._sleep([self._acks_due, self._channel.socket.fileno()], TICK_S)
            if session.loss:
                raise session.loss
            self._acknowledge()
            now = time.monotonic()
            silent_s = now - self._heard_at
            if self._hear_every_s and silent_s > SILENT_BEATS * self._hear_every_s:
                raise session.lose(f"no sign of life for {silent_s:.1f} s")
            if self._send_every_s and now - self._sent_at > self._send_every_s:
                self._push(b"\n")
            # While messages are pending, the broker may be waiting for their acks.
            if (
                self._dialect.falls_silent
                and not self._partial_since
                and self._delivered == self._acked
                and now - min(self._delivered_at.values(), default=now) > QUIET_S
            ):
                break
        self._acknowledge()
        if session.unreadable:
            # The broker must have read our acks: closing at once may discard them.
            self._push(encode("DISCONNECT", {"receipt": "DISCONNECT"}))
            self._channel.deadline = Deadline.after(GOODBYE_S)
            with suppress(OSError):
                while self._channel.receive(RECEIVE_BYTES):
                    pass
            raise session.lose(session.unreadable)

    def ack(self, tokens: Sequence[tuple[str, str]]) -> None:
        """Called by the main loop, with the tokens in the order of the deliveries."""
        if self._gave_back:
            return
        last: dict[str, str] = {}
        for subscription_id, ack_id in tokens:
            last.pop(subscription_id, None)
            last[subscription_id] = ack_id
        last.pop("", None)  # of messages without an ack id
        self._acks.append(last)
        self._acked += len(tokens)
        os.eventfd_write(self._acks_due, 1)

    def give_back(self, tokens: Sequence[tuple[str, str]]) -> None:
        self._gave_back = True
        os.eventfd_write(self._acks_due, 1)

    @property
    def is_amid_a_message(self) -> bool:
        """Whether a message has been incomplete for a while; for any thread."""
        began = self._partial_since
        return began > 0 and time.monotonic() - began > PAUSE_S

    def close(self) -> None:
        self._session.close()

    def __del__(self) -> None:
        if self._acks_due >= 0:
            os.close(self._acks_due)  # only now no further ack is possible

    def _sleep(self, files: Sequence[int], timeout_s: float) -> None:
        ready = select.poll()
        for file in files:
            ready.register(file, select.POLLIN)
        ready.poll(timeout_s * 1000)

    def _soon(self) -> Deadline:
        return Deadline.after(self._settings.reply_s)

    def _take(self, data: bytes, messages: list[Frame | Fault]) -> None:
        """Called with all that was read at once, and the messages in it."""
        paused_s = time.monotonic() - self._heard_at
        self._heard_at += paused_s
        if self._session.unreadable:
            return
        self._received += len(data)
        last = messages[-1] if messages else None
        if isinstance(last, Fault) and last.is_last:
            self._read_no_more(messages)
        if messages:
            self._deliver(messages)
        if not self._reader.may_have_ended:
            self._question = self._tail = b""
        elif self._question:
            self._tail += data
            if self._question in self._tail:  # it has answered: the frame had ended before
                rest: list[Frame | Fault] = [self._reader.end_frame()]
                self._read_no_more(rest)
                self._deliver(rest)
                return
            self._tail = self._tail[-LONGEST_ANSWER:]
        elif data in HEART_BEATS and paused_s > PAUSE_S:
            # A heart-beat, or a part of the body: the broker answers when it has sent all of it.
            name = f"end-{secrets.token_hex(8)}"
            self._question = name.encode()
            self._push(
                encode("BEGIN", {"transaction": name, "receipt": name})
                + encode("ABORT", {"transaction": name})
            )
        if not self._reader.is_within_frame:
            self._partial_since = 0.0
        elif not self._partial_since:
            self._partial_since = self._heard_at

    def _read_no_more(self, messages: list[Frame | Fault]) -> None:
        """Replace the fault at the end: at the last attempt, by the message that it belongs to.

        Bytes that do not begin a frame belong to the message before them: its body has a NUL.
        """
        fault = messages.pop()
        assert isinstance(fault, Fault)
        if not self._stamps:
            self._session.lose(fault.problem)
            return
        self._session.unreadable = fault.problem
        if not fault.command and messages:
            cut = messages.pop()
            body = cut.body + b"\0" + fault.body
            fault = fault._replace(command=cut.command, headers=cut.headers, body=body)
        if fault.command == "MESSAGE" and fault.headers.get(self._ack_id):
            message_id = fault.headers.get("message-id", "")[:LONGEST_KEY]
            if self._settings.is_last_attempt(self.broker, message_id):
                messages.append(fault)

    def _deliver(self, messages: Sequence[Frame | Fault]) -> None:
        deliveries: list[Delivery] = []
        signed: list[int] = []
        self._partial_since = 0.0
        for frame in messages:
            headers = frame.headers
            fault = frame if isinstance(frame, Fault) else None
            try:
                token = headers["subscription"], headers[self._ack_id]
                stamp = self._stamps[token[0]]
            except KeyError as error:
                token, stamp = _NO_TOKEN, _NOT_SUBSCRIBED
                fault = fault or Fault(frame.command, headers)
                fault = fault.and_also(f"a MESSAGE without a known {error}")
            # Changed in place: the frame is not used again.
            claims = {name: headers.pop(name) for name in ours_among(tuple(headers))}
            for name in SESSION_HEADERS:
                headers.pop(name, None)
            if self._user_header:
                user = headers.get(self._user_header)
                if user and user.isprintable():
                    identity = broker_identity(self.broker, user)
                    if identity in self._settings.relays:
                        identity = established_identity(claims.get(IDENTITY, ""), identity)
                        headers |= {name: claims[name] for name in MARKS if name in claims}
                    if identity != ANONYMOUS:
                        headers[IDENTITY] = identity
            message = Message(headers, frame.body)
            if fault is not None:
                message = refused(message, fault)
            if KEY_NAME in headers:  # it says everything itself
                signed.append(len(deliveries))
            else:
                message = stamp.stamped(message)
            deliveries.append(Delivery(message, self, token))
        if signed:
            unchecked = [deliveries[at].message for at in signed]
            for at, message in zip(
                signed, self._settings.signatures.all_checked(unchecked, self._inbox), strict=True
            ):
                deliveries[at] = deliveries[at]._replace(message=message)
        self._delivered += len(deliveries)
        if self._dialect.falls_silent:
            self._delivered_at.update((id_, self._heard_at) for *_, (id_, _) in deliveries if id_)
        # What is not a body is a head: counting the bytes of each head would take longer.
        self._received -= sum([len(frame.body) for frame in messages])
        self._inbox.put(deliveries, min(max(self._received, 0), len(messages) * MAX_HEAD_BYTES))
        self._received = min(self._received, 0)  # part of a body has been counted as a head

    def _acknowledge(self) -> None:
        """Send the last ack of each subscription in the order of delivery: acks are cumulative.

        On RabbitMQ they are cumulative across subscriptions; another order would ack twice.
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
        session = self._session
        session.send(frames, self._soon())
        if session.send_failure:
            with suppress(NoAnswer):  # an ERROR frame of the broker explains more
                session.receive(Deadline.after(LAST_READ_S))
            raise session.lose(session.send_failure)
        self._sent_at = time.monotonic()


@dataclass(frozen=True)
class StompSettings:
    """The settings of a consumer for a network broker."""

    consumer: str
    subscriptions: tuple[Subscription, ...] = ()
    client_id: str = ""
    """Distinguishes the processes of one consumer; by default its name."""
    user: str = ""
    password: Callable[[], str | None] = lambda: None
    """Called for each connection, since passwords change while the daemon runs."""
    vhost: str = VIRTUAL_HOST
    proxy: Callable[[], Proxy | None] | None = None
    """The HTTP proxy for each connection, with its password; None for direct connections."""
    tls_files: TlsFiles = field(default_factory=TlsFiles)
    tls_context: Callable[[], SSLContext] | None = None
    """How to get the context of these files, if not simply by reading them."""
    reply_s: float = REPLY_S
    heart_beat_s: float = 10.0
    max_message_bytes: int = MAX_MESSAGE_BYTES
    """A larger body is skipped while it arrives."""
    vouches: bool = False
    """Whether the broker is trusted to name the user who sent a message."""
    relays: Collection[str] = ()
    """The identities of users whose messages have identities to keep."""
    signatures: SignatureCheck = field(default_factory=SignatureCheck)
    is_last_attempt: Callable[[str, str], bool] = lambda broker, message_id: False
    """Called in any thread for a frame that could not be read: whether to deliver what is known."""
    records: BrokerRecords | None = None
    """Remembers the subscriptions that are made at the broker."""
    pause: Callable[[], str] = lambda: ""
    """Why messages can't be stored at present; empty if they can."""
    session: type[ConsumingSession] = ConsumingSession

    def login(self, user: str | None) -> dict[str, str | None]:
        """The headers of CONNECT for a broker whose URL has this user; None for an absent one.

        The durable subscriptions belong to the client-id. Raises SessionLost.
        """
        try:
            password = self.password()
        except ConfigError as error:
            raise SessionLost(str(error)) from error
        login = {"login": user or self.user or None, "passcode": password}
        return {"client-id": self.client_id or self.consumer, "host": self.vhost, **login}

    def open_channel(self, broker: Broker, address: Address) -> Channel:
        """A new connection, with TLS if the URL of the broker says so; raises SessionLost.

        Through a proxy, which resolves the name of the broker, the address has no effect.
        """
        try:
            proxy = self.proxy() if self.proxy else None
            channel = open_connection(broker, address, proxy, Deadline.after(CONNECT_S))
            if broker.tls:
                channel = secure(channel, broker, self.tls_files, self.tls_context)
            return channel
        except (OSError, ConfigError) as error:
            raise SessionLost(error_text(error)) from error

    def families_of(self, broker: Broker) -> list[list[str]]:
        """The addresses behind the name of a broker, by family; raises OSError."""
        if self.proxy:  # it resolves the name
            return [[broker.host]]
        timeout = Deadline.after(LOOK_UP_TIMEOUT_S)
        return by_family(Resolver().ips_of(broker.host, broker.port, timeout))

    def open_session(
        self, broker: Broker, address: Address, max_body_bytes: int, timeout_s: float
    ) -> tuple[StompSession, BrokerDialect]:
        """A session that is logged in, for a command that asks the broker; raises SessionLost."""
        login = self.login(broker.user)
        reader = FrameReader(max_body_bytes=max_body_bytes, lenient=True)
        session = StompSession(self.open_channel(broker, address), reader.feed, RECEIVE_BYTES)
        try:
            answer = session.log_in(login, Deadline.after(timeout_s))
            return session, dialect_of(answer.get("server", ""))
        except SessionLost:
            session.drop()
            raise


def refused(message: Message, fault: Fault) -> Message:
    """The message of a frame with this fault, marked with it."""
    reason, text = BAD_FRAME, fault.problem
    if fault.large:
        message = fault.large.message(message.headers)
        reason, text = TOO_LARGE, message.headers[REFUSED_TEXT]
        if fault.problem:
            text = f"{text}; {fault.problem}"
    return mark_refused(message, reason, text, fault.head)
