"""The messages of a load test on the wire, and the sessions that send and receive them.

Each carries its id and the time of sending in one header, so that there is room for them even if
the payload is empty:

    samLoadTest:RUN.CELL.PRODUCER.NUMBER.MICROSECONDS
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Callable, NamedTuple, Optional

from sam_pipeline.publisher.brokers.connection import open_channel, usable
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.load_test.plan import QUEUE, TOPIC, LoadCell
from sam_pipeline.schema.messages.headers import RECEIPT
from sam_pipeline.schema.messages.message import CLASS
from sam_pipeline.schema.net.broker import Target
from sam_pipeline.schema.net.channel import RECEIVE_BYTES
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.frame import Fault, Frame, FrameError, encode, parse_head
from sam_pipeline.schema.net.stomp.sender import RABBITMQ
from sam_pipeline.schema.net.stomp.session import Feed, SessionLost, StompSession
from sam_pipeline.schema.records.classes import CHECK_CLASS

NAME = "sam-load-test"
"""All our destinations, subscriptions and clients are called `sam-load-test.RUN…`."""
HEADER = "samLoadTest"
SUBSCRIPTION = "load"
PER_RECEIPT = 50
"""Messages that one receipt confirms at most; with a rate, only those that are due."""
MAX_RECEIPTS = 2
"""Receipts that a producer waits for at most before it sends more."""
PREFETCH = 200
"""How many unacknowledged messages a consumer may have."""
FRAME_BYTES = 512
"""The size of a frame without its payload, as Artemis counts unacknowledged bytes."""
ARTEMIS = "ActiveMQ-Artemis/"

_MESSAGE = re.compile(rb"[\r\n]*MESSAGE\r?\n")
_ID = re.compile(rb"\nsamLoadTest:(\w+)\.(\d+)\.(\d+)\.(\d+)\.(\d+)\r?\n")
_ACK = re.compile(rb"\nack:([^\r\n]*)")
# Of ActiveMQ and Artemis, in ms. RabbitMQ has one only with a plugin or an interceptor, in s, and
# then another one in ms.
_STAMP = re.compile(rb"\ntimestamp_in_ms:(\d+)|\ntimestamp:(\d+)")
_IN_SECONDS = 100_000_000_000
"""A time of the broker below this is in s, not in ms."""


class LoadRoute(NamedTuple):
    """Where the messages of a run go, at one broker."""

    target: Target
    run: str

    def destination(self, kind: str) -> str:
        """Different ones for topic and queue: Artemis has one address for both."""
        return f"/{kind}/{NAME}.{self.run}.{kind}"

    def client(self, cell: int, consumer: int) -> str:
        """The client-id and the name of the durable subscription of a consumer."""
        return f"{NAME}.{self.run}.{cell}.{consumer}"


class LoadArrival(NamedTuple):
    """One of our messages; times in µs since 1970, that of the broker is 0 if it states none."""

    cell: int
    producer: int
    number: int
    sent_us: int
    broker_us: int
    arrived_us: int


class ArrivalReader:
    """Hands over our messages as arrivals; all other frames are read as usual.

    No payload of ours contains a NUL, so every NUL ends a frame. This takes a quarter of the time
    of `FrameReader`, which cannot know that.
    """

    def __init__(self, run: str, arrived: Callable[[LoadArrival], None]) -> None:
        self._run = run.encode()
        self._arrived = arrived
        self._rest = b""
        self.bytes = 0
        """Everything that was received."""
        self.foreign = 0
        """Messages that are not of this run."""
        self.ack = b""
        """The ack id of the last message, as it is on the wire."""

    def feed(self, data: bytes) -> Iterable[Frame | Fault]:
        now_us = time.time_ns() // 1000
        self.bytes += len(data)
        *frames, self._rest = (self._rest + data).split(b"\0")
        others: list[Frame | Fault] = []
        for frame in frames:
            start = _MESSAGE.match(frame)
            end = frame.find(b"\n\n") + 1 or len(frame)
            if start is None:
                head = bytearray(frame[: end - 1].lstrip(b"\r\n"))
                try:
                    others.append(parse_head(head)._replace(body=frame[end + 1 :]))
                except FrameError as error:
                    return [*others, Fault("", {}, str(error), is_last=True)]
                continue
            ack = _ACK.search(frame, 0, end)
            self.ack = ack[1] if ack else b""
            found = _ID.search(frame, 0, end)
            if found is None or found[1] != self._run:
                self.foreign += 1
                continue
            stamp = _STAMP.search(frame, 0, end)
            broker_us = 0
            if stamp is not None:
                broker_us = int(stamp[1] or stamp[2])
                broker_us *= 1000 if broker_us > _IN_SECONDS else 1_000_000
            cell, producer, number, sent_us = map(int, found.groups()[1:])
            self._arrived(LoadArrival(cell, producer, number, sent_us, broker_us, now_us))
        return others


class Consumer:
    """A session that has subscribed; its messages go to `arrived`, and it acks what it read."""

    def __init__(
        self,
        route: LoadRoute,
        cell: LoadCell,
        numbers: tuple[int, int],
        arrived: Callable[[LoadArrival], None],
        deadline: Deadline,
        receive_bytes: int,
    ) -> None:
        """`numbers`: of the cell and of the consumer.

        Raises:
            BrokerUnavailable: it can't connect or subscribe.
        """
        self._name = route.client(*numbers)
        self._cell = cell
        self.reader = ArrivalReader(route.run, arrived)
        self._unsent = b""
        client = self._name if cell.is_durable else None
        self.session, self.server = _open(
            route, deadline, client, feed=self.reader.feed, receive_bytes=receive_bytes
        )
        try:
            headers = {"destination": route.destination(cell.kind), **self._headers()}
            self.session.ask("SUBSCRIBE", headers, deadline)
        except SessionLost as loss:
            self.session.drop()
            raise BrokerUnavailable(route.target, f"can't subscribe: {loss}") from loss

    def _headers(self) -> dict[str, str]:
        """The headers of all kinds of brokers; each of them ignores the others."""
        cell, name = self._cell, self._name
        headers = {
            "id": SUBSCRIPTION,
            "ack": "client",
            "activemq.prefetchSize": str(PREFETCH),
            "prefetch-count": str(PREFETCH),
            "consumer-window-size": str(PREFETCH * (cell.size_bytes + FRAME_BYTES)),
        }
        if self.server.startswith(ARTEMIS):
            headers["subscription-type"] = "MULTICAST" if cell.kind == TOPIC else "ANYCAST"
        if cell.is_durable:
            headers["activemq.subscriptionName"] = headers["durable-subscription-name"] = name
            headers["x-queue-name"] = name
        # On RabbitMQ every subscription has a queue, which vanishes with its last reader. One that
        # is not durable belongs to one connection, and could not be shared.
        headers["auto-delete"] = "true"
        headers["durable"] = str(cell.persistent or cell.kind == QUEUE).lower()
        return headers

    def receive(self) -> bool:
        """Read arrived frames, and ack them; return whether there were any. Raises SessionLost."""
        if not self.session.receive_now():
            return False
        if self.reader.ack:
            self._unsent += b"ACK\nid:" + self.reader.ack + b"\n\n\0"
            self.reader.ack = b""
            self.flush()
        return True

    def flush(self) -> None:
        """Send the acks that the connection did not take at once."""
        if self._unsent:
            self._unsent = self._unsent[self.session.send_now(self._unsent) :]

    def leave(self, deadline: Deadline) -> str:
        """End and delete the subscription; return the problem, if it could not be done."""
        try:
            if self._unsent:
                self.session.send(self._unsent, deadline)
            subscription = {"id": SUBSCRIPTION}
            if not self.server.startswith((RABBITMQ, ARTEMIS)):
                self.session.ask("UNSUBSCRIBE", subscription, deadline)
            if self._cell.is_durable:
                if self.server.startswith(RABBITMQ):
                    subscription = self._headers()
                else:
                    subscription["durable-subscription-name"] = self._name
                    subscription["activemq.subscriptionName"] = self._name
                self.session.ask("UNSUBSCRIBE", subscription, deadline)
            elif self.server.startswith((RABBITMQ, ARTEMIS)):
                self.session.ask("UNSUBSCRIBE", subscription, deadline)
        except SessionLost as loss:
            stored = f"subscription {self._name}" if self._cell.is_durable else "a subscription"
            return f"{stored} may remain at the broker: {loss}"
        finally:
            self.session.close()
        return ""


class Producer:
    """A session that sends its share of the messages, in order.

    It has a limited number of messages without a receipt, as a careful client has. So it goes as
    fast as the broker confirms, and stops when the broker does: that is flow control.
    """

    def __init__(
        self, route: LoadRoute, cell: LoadCell, numbers: tuple[int, int], deadline: Deadline
    ) -> None:
        """`numbers`: of the cell and of the producer. Raises BrokerUnavailable."""
        self.session, server = _open(route, deadline)
        destination = route.destination(cell.kind)
        if cell.kind == QUEUE and server.startswith(RABBITMQ):
            # The queue of the consumers, as it is: a SEND to /queue/ would declare another one.
            destination = f"/amq{destination}"
        headers = {**route.target.headers}
        headers.update(destination=destination, persistent=str(cell.persistent).lower())
        headers[CLASS] = CHECK_CLASS  # a consumer of all topics counts such messages, no more
        if server.startswith(ARTEMIS):
            headers["destination-type"] = "MULTICAST" if cell.kind == TOPIC else "ANYCAST"
        cell_number, self.number = numbers
        head = encode("SEND", headers).removesuffix(b"\n\n\0" if headers else b"")
        self._head = b"%b\n%b:%b.%d.%d." % (
            *(head, HEADER.encode(), route.run.encode(), cell_number, self.number),
        )
        self._payload = b"\n\n" + b"x" * cell.size_bytes + b"\0"
        self.share = cell.share(self.number)
        self.next = 0
        self.confirmed = 0
        self.waiting: deque[int] = deque()
        """The receipts it waits for: each is the number of messages that are confirmed then."""
        self.unsent = b""
        self.lost = False

    @property
    def is_done(self) -> bool:
        return self.lost or not (self.waiting or self.unsent)

    def can_send(self) -> bool:
        if self.lost or self.unsent or self.next >= self.share:
            return False
        return len(self.waiting) < MAX_RECEIPTS

    def send(self, count: int) -> int:
        """Send up to `count` messages, the last of which asks for a receipt; return how many."""
        first, self.next = self.next, min(self.next + count, self.share)
        parts: list[bytes] = []
        for number in range(first, self.next):
            parts += (self._head, b"%d.%d" % (number, time.time_ns() // 1000), self._payload)
        parts[-1] = b"\n%b:%d%b" % (RECEIPT.encode(), self.next, self._payload)
        self.unsent = b"".join(parts)
        self.waiting.append(self.next)
        self.flush()
        return self.next - first

    def flush(self) -> None:
        if self.unsent:
            self.unsent = self.unsent[self.session.send_now(self.unsent) :]

    def receive(self) -> bool:
        """Read receipts; return whether one arrived."""
        self.session.receive_now()
        receipts = self.session.receipts_now()
        for receipt in receipts:
            self.confirmed = max(self.confirmed, int(receipt))
            while self.waiting and self.waiting[0] <= self.confirmed:
                self.waiting.popleft()
        return bool(receipts)


def _open(
    route: LoadRoute,
    deadline: Deadline,
    client: Optional[str] = None,
    feed: Optional[Feed] = None,
    receive_bytes: int = RECEIVE_BYTES,
) -> tuple[StompSession, str]:
    """A session that is logged in, and the software of the broker; raises BrokerUnavailable."""
    target = route.target
    user, password = usable(target, target.login)
    login: Mapping[str, Optional[str]] = {
        "login": user,
        "passcode": password,
        "client-id": client,
        "heart-beat": "0,0",
        "host": target.vhost,
    }
    session = StompSession(open_channel(target, deadline), feed, receive_bytes)
    try:
        return session, session.log_in(login, deadline).get("server", "")
    except SessionLost as loss:
        session.drop()
        raise BrokerUnavailable(target, f"login failed: {loss}") from loss
