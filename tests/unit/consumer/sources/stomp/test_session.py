"""STOMP sessions, links and sources against a broker in a thread that speaks real frames."""

from __future__ import annotations

import gc
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, repeat
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.consumer.core.inbox import BatchRule, Delivery, Inbox, acknowledge
from sam_pipeline.consumer.sources.stomp import session as stomp_session
from sam_pipeline.consumer.sources.stomp import source as stomp
from sam_pipeline.consumer.sources.stomp.dialects import dialect_of, subscribe_headers
from sam_pipeline.consumer.sources.stomp.link import LIVED_S, Address, StompLink, StompSettings
from sam_pipeline.consumer.sources.stomp.session import ConsumingSession, Login, Subscription
from sam_pipeline.consumer.sources.stomp.source import StompSource
from sam_pipeline.schema.identity.identity import ANONYMOUS, identity_of
from sam_pipeline.schema.messages.foreign import make_stamp
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.net.channel import connect
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp_session import CLOSED, SessionLost

SOON_S = 10.0
EVENT = "anon_inode:[eventfd]"
real_getaddrinfo = socket.getaddrinfo
METRICS = Subscription("/topic/grid.probe.metricOutput", make_stamp("metricOutput"), 100)
SITE_A = Login("site-a")
SITES = Subscription("/topic/grid.probe.siteGroup", make_stamp("siteGroup"), 100)


@dataclass(frozen=True)
class Frame:
    command: str
    headers: Mapping[str, str]


@dataclass
class FakeBroker:
    """Answers CONNECT and receipts; tests make it send more. `frames` has the received frames."""

    server: str = "ActiveMQ/6.3.1"
    heart_beat: str = "0,0"
    refusal: str = ""
    refuses: str = ""
    """A destination nobody may subscribe to: it costs the connection."""
    mute: bool = False
    frames: queue.SimpleQueue[Frame] = field(default_factory=queue.SimpleQueue)
    connections: list[socket.socket] = field(default_factory=list)
    listening: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def address(self) -> Address:
        host, port = self.listening.getsockname()
        return host, port

    def __enter__(self) -> FakeBroker:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.drop()

    def drop(self) -> None:
        """Close every connection."""
        while self.connections:
            connection = self.connections.pop()
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def send(self, command: str, body: str = "", **headers: str) -> None:
        """Send a frame over the newest connection."""
        _send(self.connections[-1], command, body, **headers)

    def deliver(self, subscription_id: str, ack_id: str) -> None:
        self.send("MESSAGE", subscription=subscription_id, ack=ack_id, message_id=ack_id)

    def heard(self, command: str) -> Frame:
        """The next received frame with this command."""
        deadline = time.monotonic() + SOON_S
        while True:
            frame = self.frames.get(timeout=max(deadline - time.monotonic(), 0))
            if frame.command == command:
                return frame

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listening.accept()
                self.connections.append(connection)
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with suppress(OSError):
            received = b""
            while data := connection.recv(65536):
                *frames, received = (received + data).split(b"\0")
                for frame in frames:
                    self._answer(connection, _parse(frame.decode()))
                if received == b"\n":
                    self.frames.put(Frame("heart-beat", {}))
                    received = b""

    def _answer(self, connection: socket.socket, frame: Frame) -> None:
        self.frames.put(frame)
        if self.mute:
            return
        if frame.command == "CONNECT" and self.refusal:
            _send(connection, "ERROR", message=self.refusal)
        elif frame.command == "CONNECT":
            facts = {"server": self.server, "heart_beat": self.heart_beat}
            _send(connection, "CONNECTED", version="1.2", **facts)
        elif frame.command == "SUBSCRIBE" and frame.headers["destination"] == self.refuses:
            _send(connection, "ERROR", message="not authorized")
            connection.shutdown(socket.SHUT_RDWR)
        elif "receipt" in frame.headers:
            _send(connection, "RECEIPT", receipt_id=frame.headers["receipt"])


def _send(connection: socket.socket, command: str, body: str = "", **headers: str) -> None:
    lines = "".join(f"{key.replace('_', '-')}:{value}\n" for key, value in headers.items())
    connection.sendall(f"{command}\n{lines}\n{body}\0".encode())


def _parse(text: str) -> Frame:
    command, *lines = text.lstrip("\n").split("\n\n")[0].split("\n")
    pairs = (line.split(":", 1) for line in lines)
    return Frame(command, {key: value.replace("\\c", ":") for key, value in pairs})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stomp_session, "TICK_S", 0.02)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


@pytest.fixture
def inbox() -> Inbox:
    return Inbox(1000)


def logged_in(
    broker: FakeBroker, inbox: Inbox, login: Login = SITE_A, **settings: Any
) -> ConsumingSession:
    channel = connect(*broker.address, Deadline.after(SOON_S))
    return ConsumingSession(channel, "stomp://a:1", inbox, login, **settings)


@contextmanager
def served(
    broker: FakeBroker, inbox: Inbox, *subscriptions: Subscription, **settings: Any
) -> Iterator[None]:
    """A subscribed session that is served inside the block."""
    session = logged_in(broker, inbox, **settings)
    stop = threading.Event()
    session.subscribe("site-a", subscriptions)
    thread = threading.Thread(target=session.serve, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(SOON_S)
        session.close()


def take(inbox: Inbox, count: int) -> list[Delivery]:
    batch: list[Delivery] = []
    while len(batch) < count:
        more = inbox.take(BatchRule(count - len(batch), SOON_S, SOON_S), wait_s=SOON_S)
        assert more, f"{len(batch)} of {count} came"
        batch += more
    return batch


def test_a_session_identifies_itself_and_subscribes_durably(
    broker: FakeBroker, inbox: Inbox
) -> None:
    with served(broker, inbox, METRICS):
        connect, subscribe = broker.heard("CONNECT"), broker.heard("SUBSCRIBE")

    assert connect.headers["client-id"] == "site-a"
    assert connect.headers["host"] == "/"
    assert subscribe.headers["destination"] == METRICS.destination
    assert subscribe.headers["activemq.subscriptionName"] == "site-a.grid.probe.metricOutput"
    assert subscribe.headers["activemq.prefetchSize"] == "100"
    assert subscribe.headers["ack"] == "client"


def test_a_batch_has_at_most_half_of_the_messages_that_a_broker_sends_without_an_ack(
    broker: FakeBroker, inbox: Inbox
) -> None:
    by_default = METRICS._replace(prefetch=None)
    with served(broker, inbox, by_default, METRICS._replace(destination="/topic/b", prefetch=7000)):
        headers = [broker.heard("SUBSCRIBE").headers for _ in range(2)]
        broker.send("MESSAGE", "body", subscription="0", ack="7", message_id="7")
        (delivery,) = take(inbox, 1)

    assert [header["activemq.prefetchSize"] for header in headers] == ["2000", "7000"]
    assert delivery.session.batch_size == 1000


def test_a_message_keeps_its_headers_but_not_those_of_the_session(
    broker: FakeBroker, inbox: Inbox
) -> None:
    with served(broker, inbox, METRICS):
        broker.send(
            "MESSAGE", "body", subscription="0", ack="7", message_id="7", destination="/x", a="b"
        )
        (delivery,) = take(inbox, 1)

    assert delivery.message.body == b"body"
    assert delivery.message.headers == {
        "destination": "/x",
        "a": "b",
        "messageClass": "metricOutput",
    }


ACTIVEMQ, RABBITMQ = "ActiveMQ/6.3.1", "RabbitMQ/3.10.8"


@pytest.mark.parametrize(
    ("server", "vouches", "identity"),
    [
        (ACTIVEMQ, True, "broker:stomp://a:1/jms"),
        ("ActiveMQ-Artemis/2.56.0", True, "broker:stomp://a:1/jms"),
        (RABBITMQ, True, "broker:stomp://a:1/amqp"),
        (ACTIVEMQ, False, ANONYMOUS),
        (RABBITMQ, False, ANONYMOUS),
    ],
)
def test_a_sender_is_known_only_by_the_header_that_a_vouching_broker_sets(
    broker: FakeBroker, inbox: Inbox, server: str, vouches: bool, identity: str
) -> None:
    broker.server = server
    forged = {"samIdentity": "key:root", "JMSXUserID": "jms", "user_id": "amqp"}
    with served(broker, inbox, METRICS, vouches=vouches):
        broker.send("MESSAGE", subscription="0", ack="7", message_id="7", **forged)
        (delivery,) = take(inbox, 1)

    assert identity_of(delivery.message) == identity


def test_a_message_of_no_user_is_anonymous_at_a_vouching_broker(
    broker: FakeBroker, inbox: Inbox
) -> None:
    with served(broker, inbox, METRICS, vouches=True):
        broker.send("MESSAGE", subscription="0", ack="7", message_id="7", samIdentity="key:root")
        (delivery,) = take(inbox, 1)

    assert identity_of(delivery.message) == ANONYMOUS


@pytest.mark.parametrize(
    ("user", "claimed", "identity"),
    [
        ("bridge", "token:nagios1", "token:nagios1"),
        ("bridge", ANONYMOUS, ANONYMOUS),
        ("bridge", "", "broker:stomp://a:1/bridge"),
        ("bridge", "operator:root", "broker:stomp://a:1/bridge"),
        ("eve", "token:nagios1", "broker:stomp://a:1/eve"),
    ],
)
def test_only_a_relay_for_whom_the_broker_vouches_says_who_sent_a_message(
    broker: FakeBroker, inbox: Inbox, user: str, claimed: str, identity: str
) -> None:
    relays = {"broker:stomp://a:1/bridge"}
    with served(broker, inbox, METRICS, vouches=True, relays=relays):
        headers = {"JMSXUserID": user, "samIdentity": claimed}
        broker.send("MESSAGE", subscription="0", ack="7", message_id="7", **headers)
        (delivery,) = take(inbox, 1)

    assert identity_of(delivery.message) == identity


def test_a_paused_session_stays_connected_and_reads_on_later(
    broker: FakeBroker, inbox: Inbox
) -> None:
    inbox.pause("stomp://a:1", 1.0)
    ends = time.monotonic() + 0.9
    with served(broker, inbox, METRICS):
        broker.deliver("0", "7")
        (delivery,) = take(inbox, 1)
        arrived = time.monotonic()
        acknowledge([delivery])
        acked = broker.heard("ACK")

    assert arrived >= ends
    assert acked.headers["id"] == "7"


def test_long_heads_take_room_in_the_inbox(broker: FakeBroker) -> None:
    inbox = Inbox(1000, max_bytes=50_000)
    with served(broker, inbox, METRICS):
        for number in "123":
            broker.send(
                "MESSAGE", "b", subscription="0", ack=number, message_id=number, a="x" * 20_000
            )
        eventually(lambda: not inbox.has_room)
        take(inbox, 3)
        broker.send("MESSAGE", "b" * 10_000, subscription="0", ack="4", message_id="4")
        eventually(lambda: inbox.size_bytes > 0)

        assert 10_000 < inbox.size_bytes < 11_000


def test_acks_of_a_batch_are_one_transaction_with_the_last_of_each_subscription_in_order(
    broker: FakeBroker, inbox: Inbox
) -> None:
    with served(broker, inbox, METRICS, SITES):
        for subscription_id, ack_id in [("0", "a1"), ("0", "a2"), ("1", "b1"), ("0", "a3")]:
            broker.deliver(subscription_id, ack_id)
        batch = take(inbox, 4)
        assert broker.frames.qsize() == 3  # nothing is acked before its ack
        acknowledge(batch)
        begin = broker.heard("BEGIN")
        acks = [broker.heard("ACK"), broker.heard("ACK")]
        commit = broker.heard("COMMIT")

    assert [ack.headers["id"] for ack in acks] == ["b1", "a3"]
    assert {frame.headers["transaction"] for frame in (begin, *acks, commit)} == {"ack-1"}


def test_acks_given_before_the_stop_are_sent(broker: FakeBroker, inbox: Inbox) -> None:
    with served(broker, inbox, METRICS):
        broker.deliver("0", "a1")
        acknowledge(take(inbox, 1))

    assert broker.heard("ACK").headers["id"] == "a1"
    assert broker.heard("DISCONNECT")


def test_a_broker_that_refuses_the_login_is_quoted(inbox: Inbox) -> None:
    with (
        FakeBroker(refusal="User name [sam] or password is invalid.") as broker,
        pytest.raises(SessionLost, match=r"User name \[sam\] or password is invalid"),
    ):
        logged_in(broker, inbox, Login("site-a", "sam", "wrong"))


def test_a_broker_that_never_answers_is_disconnected(inbox: Inbox) -> None:
    with (
        FakeBroker(mute=True) as broker,
        pytest.raises(SessionLost, match=r"no CONNECTED within 0\.2 s"),
    ):
        logged_in(broker, inbox, reply_s=0.2)


def test_failed_logins_leave_no_descriptors_to_the_garbage_collector(inbox: Inbox) -> None:
    """A quiet consumer seldom collects garbage, and tries again for as long as a broker is away."""

    def events() -> int:
        paths = Path("/proc/self/fd").iterdir()
        return [os.readlink(path) for path in paths if path.is_symlink()].count(EVENT)

    with FakeBroker(refusal="not now") as broker:
        gc.disable()
        try:
            before = events()
            for _ in range(5):
                with pytest.raises(SessionLost):
                    logged_in(broker, inbox)

            assert events() == before
        finally:
            gc.enable()


def test_a_broker_of_an_unknown_kind_is_refused_rather_than_subscribed_undurably(
    inbox: Inbox,
) -> None:
    with (
        FakeBroker(server="apollo/1.7") as broker,
        pytest.raises(SessionLost, match="unsupported kind of broker: apollo"),
    ):
        logged_in(broker, inbox)


def test_a_port_without_a_listener_is_reported_as_refused() -> None:
    with FakeBroker() as broker:
        nobody = broker.address

    with pytest.raises(SessionLost, match="connection refused"):
        StompSettings("site-a", (METRICS,)).open_channel(Broker("stomp", *nobody), nobody)


def test_a_broker_that_falls_silent_is_disconnected(inbox: Inbox) -> None:
    with FakeBroker(heart_beat="100,100") as broker:
        session = logged_in(broker, inbox, heart_beat_s=0.1)

        with pytest.raises(SessionLost, match="no sign of life"):
            session.serve(threading.Event())
        assert broker.heard("heart-beat")
        session.close()


def test_a_full_inbox_does_not_make_the_broker_look_silent() -> None:
    full = Inbox(1)
    with FakeBroker(heart_beat="200,0") as broker, served(broker, full, METRICS, heart_beat_s=0.2):
        broker.deliver("0", "a0")
        eventually(lambda: len(full) == 1)
        for number in range(1, 3):
            broker.deliver("0", f"a{number}")
        time.sleep(1.0)  # five heart-beats
        waiting = len(full)
        taken = take(full, 3)

    assert waiting == 1
    assert [delivery.message.body for delivery in taken] == [b"", b"", b""]


@pytest.mark.parametrize("unknown", [{"subscription": "9", "ack": "a1"}, {"subscription": "0"}, {}])
def test_a_message_that_cannot_be_acked_by_itself_is_acked_with_the_next_one(
    broker: FakeBroker, inbox: Inbox, unknown: dict[str, str]
) -> None:
    with served(broker, inbox, METRICS):
        broker.send("MESSAGE", "body", **unknown)
        broker.deliver("0", "a2")
        batch = take(inbox, 2)
        for delivery in batch:
            acknowledge([delivery])

        assert broker.heard("ACK").headers["id"] == "a2"
    assert batch[0].message.headers["samRefused"] == "bad-frame"
    assert "without a known" in batch[0].message.headers["samRefusedText"]


def test_a_frame_without_a_known_end_is_delivered_by_the_last_attempt_and_acked_before_the_end(
    inbox: Inbox,
) -> None:
    attempts: list[tuple[str, str]] = []

    def is_last_attempt(broker: str, message_id: str) -> bool:
        attempts.append((broker, message_id))
        return len(attempts) == 2

    for turn in (1, 2):
        with FakeBroker() as broker:
            session = logged_in(broker, inbox, is_last_attempt=is_last_attempt)
            session.subscribe("site-a", [METRICS])
            broker.deliver("0", "good")
            broker.send(
                "MESSAGE", "body", subscription="0", ack="bad", message_id="m", content_length="2"
            )
            broker.deliver("0", "not-read")
            thread, lost = serving(session)
            batch = take(inbox, turn)
            time.sleep(0.1)
            assert thread.is_alive()  # it waits for the acks
            acknowledge(batch)
            assert broker.heard("ACK").headers["id"] == ["good", "bad"][turn - 1]
            assert broker.heard("DISCONNECT")
            broker.drop()
            thread.join(SOON_S)

        assert "does not end after its 2 bytes" in str(lost[0])
    assert attempts == [("stomp://a:1", "m")] * 2
    assert batch[1].message.body == b"body"
    assert batch[1].message.headers["samRefused"] == "bad-frame"


@pytest.mark.parametrize("message", [{}, {"content_length": "100"}, {"content_length": "9999999"}])
def test_a_heart_beat_within_a_frame_shows_that_its_length_is_faked(
    broker: FakeBroker, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, message: dict[str, str]
) -> None:
    monkeypatch.setattr(stomp_session, "PAUSE_S", 0.1)
    session = logged_in(broker, inbox, is_last_attempt=lambda broker, message_id: True)
    session.subscribe("site-a", [METRICS])
    broker.send("MESSAGE", "body", subscription="0", ack="bad", message_id="m", **message)
    thread, lost = serving(session)
    for _ in range(2):
        time.sleep(0.3)
        broker.connections[-1].sendall(b"\n")
    batch = take(inbox, 1)
    acknowledge(batch)
    if message:
        assert broker.heard("ACK").headers["id"] == "bad"
        assert broker.heard("DISCONNECT")
    broker.drop()
    thread.join(SOON_S)

    assert ("ends before its" in str(lost[0])) == bool(message)
    assert batch[0].message.body == b"body"


def test_bytes_that_are_no_frame_belong_to_the_message_before_them(
    broker: FakeBroker, inbox: Inbox
) -> None:
    session = logged_in(broker, inbox, is_last_attempt=lambda broker, message_id: True)
    session.subscribe("site-a", [METRICS])
    broker.send("MESSAGE", "bo\0dy", subscription="0", ack="bad", message_id="m")
    thread, lost = serving(session)
    batch = take(inbox, 1)
    acknowledge(batch)
    assert broker.heard("ACK").headers["id"] == "bad"
    broker.drop()
    thread.join(SOON_S)

    assert batch[0].message.body == b"bo\0dy"
    assert batch[0].message.headers["samRefused"] == "bad-frame"
    assert "no STOMP frame begins 'dy" in str(lost[0])


def serving(session: ConsumingSession) -> tuple[threading.Thread, list[SessionLost]]:
    """A thread that serves the session, and the error that ended it."""
    lost: list[SessionLost] = []

    def serve() -> None:
        try:
            session.serve(threading.Event())
        except SessionLost as loss:
            lost.append(loss)
        session.close()

    thread = threading.Thread(target=serve)
    thread.start()
    return thread, lost


@contextmanager
def running(
    inbox: Inbox,
    resolve: Callable[[str, int], Sequence[Address]],
    host: str = "msg.example.org",
    owners: dict[Address, str] | None = None,
) -> Iterator[StompSource]:
    """A source of one URL, whose name is resolved by `resolve`, without delays."""
    source = StompSource(
        Broker("stomp", host, 61613),
        StompSettings("site-a", (METRICS,)),
        resolve=resolve,
        delays=lambda: iter(lambda: 0.01, None),
        owners=owners,
    )
    with started(source, inbox):
        yield source


@contextmanager
def started(source: StompSource, inbox: Inbox) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=source.run, args=(inbox, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(SOON_S)
        assert not thread.is_alive()


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.01)


def test_all_addresses_behind_a_name_are_consumed_at_once(broker: FakeBroker, inbox: Inbox) -> None:
    with FakeBroker(server="RabbitMQ/3.10.8") as other:
        addresses = [broker.address, other.address]
        with running(inbox, lambda host, port: addresses) as source:
            eventually(lambda: other.connections and not source.missing())
            broker.deliver("0", "a1")
            other.deliver("0", "b1")

            assert {delivery.session.broker for delivery in take(inbox, 2)} == {source.name}


def test_a_lost_connection_is_opened_again_and_its_deliveries_are_discarded(
    broker: FakeBroker, inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sam_pipeline.consumer")
    with running(inbox, lambda host, port: [broker.address]) as source:
        eventually(lambda: not source.missing())
        broker.deliver("0", "a1")
        eventually(lambda: inbox._deliveries)

        broker.drop()
        eventually(lambda: len(caplog.messages) == 3)
        broker.deliver("0", "a2")
        acknowledge(take(inbox, 1))

        assert broker.heard("ACK").headers["id"] == "a2"
    subscribed, lost, again = caplog.messages
    assert "subscribed as site-a" in subscribed
    assert f"{CLOSED}; trying again" in lost
    assert again == subscribed


@pytest.mark.parametrize(("lived_s", "sequences"), [(LIVED_S - 1, 1), (LIVED_S, 4)])
def test_delays_grow_unless_a_session_lasted_a_while(
    broker: FakeBroker, inbox: Inbox, lived_s: float, sequences: int
) -> None:
    made: list[Iterator[float]] = []

    def delays() -> Iterator[float]:
        made.append(repeat(0.01))
        return made[-1]

    now = count(step=lived_s)  # each session begins and ends with one look at the clock
    settings = StompSettings("site-a", (METRICS,))
    url = Broker("stomp", *broker.address)
    link = StompLink(url, broker.address, settings, delays, lambda: True, now.__next__)
    stop = threading.Event()
    thread = threading.Thread(target=link.run, args=(inbox, stop))
    thread.start()
    for _ in range(3):
        broker.heard("SUBSCRIBE")  # again, after each loss
        eventually(lambda: not link.problem)
        broker.drop()
    broker.heard("SUBSCRIBE")
    eventually(lambda: not link.problem)
    stop.set()
    thread.join(SOON_S)

    assert len(made) == sequences


def test_a_broker_that_stays_away_is_logged_once(
    inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeBroker() as broker:
        nobody = broker.address
    attempts = 0

    def resolve(host: str, port: int) -> Sequence[Address]:
        nonlocal attempts
        attempts += 1
        return [nobody]

    with running(inbox, resolve) as source:
        eventually(lambda: attempts > 5)
        missing = source.missing()

    assert missing == [f"{source.name} at 127.0.0.1 (connection refused)"]
    assert sum("connection refused" in text for text in caplog.messages) == 1


def test_a_name_without_addresses_is_looked_up_again(broker: FakeBroker, inbox: Inbox) -> None:
    answers: list[Sequence[Address]] = [[broker.address]]
    failures = [socket.gaierror(-2, "Name or service not known")] * 3

    def resolve(host: str, port: int) -> Sequence[Address]:
        if failures:
            raise failures.pop()
        return answers[0]

    with running(inbox, resolve) as source:
        eventually(lambda: not source.missing())

    assert not failures


@dataclass
class NameServer:
    """Resolves every name to this host, but hangs until `answer` is set."""

    answer: threading.Event = field(default_factory=threading.Event)
    queries: int = 0

    def getaddrinfo(self, host: str, port: int, *arguments: Any) -> Any:
        if not arguments[-1] & socket.AI_NUMERICHOST:
            self.queries += 1
            self.answer.wait(SOON_S)
            host = "127.0.0.1"
        return real_getaddrinfo(host, port, *arguments)


@pytest.fixture
def name_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", server.getaddrinfo)
    monkeypatch.setattr(stomp, "LOOK_UP_TIMEOUT_S", 0.05)
    yield server
    server.answer.set()


@contextmanager
def running_by_name(inbox: Inbox, broker: FakeBroker) -> Iterator[StompSource]:
    named = Broker("stomp", "msg.example.org", broker.address[1])
    settings = StompSettings("site-a", (METRICS,))
    source = StompSource(named, settings, delays=lambda: iter(lambda: 0.01, None))
    with started(source, inbox):
        yield source


def test_a_name_server_that_hangs_does_not_stop_a_reconnect(
    broker: FakeBroker, inbox: Inbox, name_server: NameServer
) -> None:
    name_server.answer.set()
    with running_by_name(inbox, broker) as source:
        eventually(lambda: not source.missing())
        assert broker.heard("CONNECT")
        name_server.answer.clear()

        broker.drop()

        assert broker.heard("CONNECT")
        eventually(lambda: not source.missing())
        assert name_server.queries > 1


def test_a_broker_whose_name_server_hangs_is_missing_until_it_answers(
    broker: FakeBroker, inbox: Inbox, name_server: NameServer, caplog: pytest.LogCaptureFixture
) -> None:
    foreground = [thread for thread in threading.enumerate() if not thread.daemon]
    with running_by_name(inbox, broker) as source:
        eventually(lambda: "no answer in time" in "".join(source.missing()))
        time.sleep(0.3)  # several attempts
        while_it_hangs = name_server.queries
        name_server.answer.set()
        eventually(lambda: not source.missing())

    assert while_it_hangs == 1  # one thread waits for it, however often it is tried
    assert sum("no answer in time; trying again" in text for text in caplog.messages) == 1
    assert [thread for thread in threading.enumerate() if not thread.daemon] == foreground


def test_an_address_removed_from_a_name_is_not_tried_again(
    broker: FakeBroker, inbox: Inbox
) -> None:
    addresses = [broker.address]
    with running(inbox, lambda host, port: addresses) as source:
        eventually(lambda: not source.missing())
        ((_, thread),) = source._links.values()

        addresses.clear()
        broker.drop()
        thread.join(SOON_S)

        assert not thread.is_alive()


def test_queues_are_subscribed_without_the_headers_of_durable_topics() -> None:
    dialect = dialect_of("RabbitMQ/3.10.8")

    headers = subscribe_headers(dialect, "site-a", "/queue/results", 100)

    assert headers == {"destination": "/queue/results", "prefetch-count": "100"}


def test_artemis_is_distinguished_from_activemq_classic() -> None:
    dialect = dialect_of("ActiveMQ-Artemis/2.56.0 ActiveMQ Artemis Messaging Engine")

    assert dialect.ack_id == "message-id"


def test_an_address_that_two_urls_lead_to_is_consumed_once(
    broker: FakeBroker, inbox: Inbox
) -> None:
    owners: dict[Address, str] = {}
    with (
        running(inbox, lambda host, port: [broker.address], "one.example.org", owners) as one,
        running(inbox, lambda host, port: [broker.address], "two.example.org", owners) as two,
    ):
        eventually(lambda: not one.missing() and not two.missing())

        assert len(one._links) + len(two._links) == 1
        assert broker.heard("CONNECT")
        assert not any(frame.command == "CONNECT" for frame in drained(broker))


def drained(broker: FakeBroker) -> list[Frame]:
    return [broker.frames.get() for _ in range(broker.frames.qsize())]


def test_a_refused_destination_does_not_affect_the_others(inbox: Inbox) -> None:
    with FakeBroker(refuses=SITES.destination) as broker:
        source = StompSource(
            Broker("stomp", "msg.example.org", 61613),
            StompSettings("site-a", (METRICS, SITES)),
            resolve=lambda host, port: [broker.address],
            delays=lambda: iter(lambda: 0.01, None),
        )
        with started(source, inbox):
            eventually(lambda: "not authorized" in "".join(source.missing()))
            eventually(lambda: "siteGroup" in "".join(source.missing()))
            eventually(lambda: len(broker.connections) > 1 and broker.frames.qsize() > 4)
            broker.deliver("0", "a1")

            assert len(take(inbox, 1)) == 1


def test_an_ack_for_a_lost_connection_is_ignored(broker: FakeBroker, inbox: Inbox) -> None:
    with served(broker, inbox, METRICS):
        broker.deliver("0", "a1")
        batch = take(inbox, 1)

    acknowledge(batch)


@pytest.mark.parametrize(
    ("server", "destination", "expected"),
    [
        (
            "ActiveMQ/6.3.1",
            "/topic/VirtualTopic.grid.results",
            {
                "destination": "/queue/Consumer.site-a.VirtualTopic.grid.results",
                "activemq.prefetchSize": "10",
            },
        ),
        (
            "ActiveMQ-Artemis/2.56.0",
            "/topic/grid.results",
            {
                "destination": "/topic/grid.results::site.a.grid.results",
                "consumer-window-size": "10240",
            },
        ),
        (
            "RabbitMQ/3.10.8",
            "/topic/grid.results",
            {
                "destination": "/topic/grid.results",
                "durable": "true",
                "auto-delete": "false",
                "x-queue-name": "site.a.grid.results",
                "prefetch-count": "10",
            },
        ),
    ],
)
def test_a_shared_subscription_is_requested_in_the_dialect_of_each_broker(
    server: str, destination: str, expected: Mapping[str, str]
) -> None:
    dialect = dialect_of(server)

    assert subscribe_headers(dialect, "site.a", destination, 10, shared=True) == expected


def test_activemq_shares_only_virtual_topics_and_queues() -> None:
    dialect = dialect_of("ActiveMQ/6.3.1")

    with pytest.raises(SessionLost, match=r"only /topic/VirtualTopic\.… and queues can be shared"):
        subscribe_headers(dialect, "site-a", "/topic/grid.results", 10, shared=True)
    assert (
        subscribe_headers(dialect, "site-a", "/queue/a", 10, shared=True)["destination"]
        == "/queue/a"
    )
