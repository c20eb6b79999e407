"""Sessions, links, sources and round trips, with a broker in a thread that speaks real frames."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import repeat
from typing import Any

import pytest

from sam_pipeline.consumer.core.inbox import BatchRule, Delivery, Inbox, acknowledge
from sam_pipeline.consumer.sources.stomp import session as stomp_session
from sam_pipeline.consumer.sources.stomp import source as stomp
from sam_pipeline.consumer.sources.stomp.records import MadeSubscription
from sam_pipeline.consumer.sources.stomp.removal import remove
from sam_pipeline.consumer.sources.stomp.round_trip import round_trips, sent_to
from sam_pipeline.consumer.sources.stomp.session import (
    Address,
    ConsumingSession,
    StompSettings,
    Subscription,
)
from sam_pipeline.consumer.sources.stomp.source import StompLink, StompSource
from sam_pipeline.schema.identity.identity import ANONYMOUS, identity_of
from sam_pipeline.schema.messages.foreign import Stamp, make_stamp
from sam_pipeline.schema.net.broker import Broker, parse_broker
from sam_pipeline.schema.net.channel import connect
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.session import SessionLost
from tests.support.brokers.fake_broker import HEART_BEAT, FakeBroker
from tests.support.waiting import SOON_S, eventually

METRICS = Subscription("/topic/grid.probe.metricOutput", make_stamp("metricOutput"), 100)
SITES = Subscription("/topic/grid.probe.siteGroup", make_stamp("siteGroup"), 100)
ACTIVEMQ, ARTEMIS, RABBITMQ = "ActiveMQ/6.3.1", "ActiveMQ-Artemis/2.56.0", "RabbitMQ/3.10.8"
AT = "stomp://a:1"
BRIDGE = f"broker:{AT}/bridge"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stomp_session, "TICK_S", 0.02)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(server=ACTIVEMQ) as broker:
        yield broker


@pytest.fixture
def inbox() -> Inbox:
    return Inbox(1000)


def logged_in(broker: FakeBroker, inbox: Inbox, **settings: Any) -> ConsumingSession:
    channel = connect(*broker.address, Deadline.after(SOON_S))
    with_login = StompSettings("site-a", **settings)
    return ConsumingSession(channel, AT, inbox, with_login.login(None), with_login)


@contextmanager
def served(
    broker: FakeBroker, inbox: Inbox, *subscriptions: Subscription, **settings: Any
) -> Iterator[tuple[ConsumingSession, list[SessionLost]]]:
    """A subscribed session that is served inside the block; the error that ended it, if any."""
    session, stop = logged_in(broker, inbox, **settings), threading.Event()
    session.subscribe(subscriptions or [METRICS])
    lost: list[SessionLost] = []

    def serve() -> None:
        try:
            session.serve(stop)
        except SessionLost as loss:
            lost.append(loss)
        session.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield session, lost
    finally:
        stop.set()
        thread.join(SOON_S)


def take(inbox: Inbox, count: int = 1) -> list[Delivery]:
    batch: list[Delivery] = []

    def complete() -> bool:
        batch.extend(inbox.take(BatchRule(count - len(batch), 0.1, 0.1), wait_s=0.1))
        return len(batch) == count

    eventually(complete)
    return batch


def test_a_session_logs_in_and_subscribes_durably(broker: FakeBroker, inbox: Inbox) -> None:
    others = [
        METRICS._replace(destination="/topic/a", prefetch=None),
        METRICS._replace(destination="/topic/b", prefetch=7000),
    ]
    with served(broker, inbox, METRICS), served(broker, inbox, *others):
        broker.deliver("0", "7", "body", destination="/x", a="b")
        (delivery,) = take(inbox)

    (connect, _), (subscribe, *more) = broker.logins, broker.subscriptions
    assert (connect.headers["client-id"], connect.headers["host"]) == ("site-a", "/")
    assert subscribe.headers["destination"] == METRICS.destination
    assert subscribe.headers["activemq.subscriptionName"] == "site-a.grid.probe.metricOutput"
    assert subscribe.headers["ack"] == "client"
    prefetches = [frame.headers["activemq.prefetchSize"] for frame in (subscribe, *more)]
    assert prefetches == ["100", "2000", "7000"]
    # The broker sends the second half of the smaller prefetch while the first one is stored.
    assert delivery.session.batch_size == 1000
    stamped = {"destination": "/x", "a": "b", "messageClass": "metricOutput"}
    assert delivery.message == (stamped, b"body")


@pytest.mark.parametrize(
    ("server", "vouches", "user", "claimed", "identity"),
    [
        (ACTIVEMQ, True, "jms", "key:root", f"broker:{AT}/jms"),
        (ARTEMIS, True, "jms", "key:root", f"broker:{AT}/jms"),
        (RABBITMQ, True, "jms", "key:root", f"broker:{AT}/amqp"),
        (RABBITMQ, False, "jms", "key:root", ANONYMOUS),
        (ACTIVEMQ, True, "", "key:root", ANONYMOUS),
        (ACTIVEMQ, True, "bridge", "token:nagios1", "token:nagios1"),
        (ACTIVEMQ, True, "bridge", ANONYMOUS, ANONYMOUS),
        (ACTIVEMQ, True, "bridge", "", BRIDGE),
        (ACTIVEMQ, True, "bridge", "operator:root", BRIDGE),
        (ACTIVEMQ, True, "eve", "token:nagios1", f"broker:{AT}/eve"),
        (ACTIVEMQ, False, "bridge", "token:nagios1", ANONYMOUS),
    ],
)
def test_who_sent_a_message_says_a_vouching_broker_or_its_relay(
    inbox: Inbox, server: str, vouches: bool, user: str, claimed: str, identity: str
) -> None:
    headers = {"JMSXUserID": user, "user_id": "amqp", "samIdentity": claimed}
    with (
        FakeBroker(server=server) as broker,
        served(broker, inbox, vouches=vouches, relays={BRIDGE}),
    ):
        broker.deliver("0", "7", message_id="7", **headers)
        (delivery,) = take(inbox)

    assert identity_of(delivery.message) == identity


def test_a_paused_session_reads_on_later(broker: FakeBroker, inbox: Inbox) -> None:
    inbox.pause(AT, 0.6)
    ends = time.monotonic() + 0.5
    with served(broker, inbox):
        broker.deliver("0", "7")
        batch = take(inbox)
        arrived = time.monotonic()
        acknowledge(batch)

    assert arrived >= ends
    assert broker.heard("ACK").headers["id"] == "7"


def test_a_batch_is_acked_in_one_transaction_in_order(broker: FakeBroker, inbox: Inbox) -> None:
    with served(broker, inbox, METRICS, SITES):
        for subscription, ack in [("0", "a1"), ("1", "b1"), ("0", "a2"), ("1", "b2"), ("0", "a3")]:
            broker.deliver(subscription, ack)
        batch = take(inbox, 5)
        assert not broker.all_of("BEGIN", "ACK")  # nothing is acked before its ack
        acknowledge(batch)
        broker.heard("COMMIT")

    sent = broker.all_of("BEGIN", "ACK", "COMMIT")
    assert [frame.command for frame in sent] == ["BEGIN", "ACK", "ACK", "COMMIT"]
    assert [frame.headers.get("id") for frame in sent] == [None, "b2", "a3", None]
    assert {frame.headers["transaction"] for frame in sent} == {"ack-1"}


def test_acks_before_the_stop_are_sent_and_no_others(broker: FakeBroker, inbox: Inbox) -> None:
    with served(broker, inbox):
        broker.deliver("0", "a1")
        acknowledge(take(inbox))
        broker.deliver("0", "a2")
        late = take(inbox)
    acknowledge(late)

    assert broker.heard("DISCONNECT")
    assert [frame.headers["id"] for frame in broker.all_of("ACK")] == ["a1"]


@pytest.mark.parametrize(
    ("faults", "problem"),
    [
        ({"refuses_login": "User name [sam] or password is invalid"}, "[sam] or password"),
        ({"drips": True}, "no CONNECTED within 0.3 s"),
        ({"version": "1.1"}, "it speaks STOMP 1.1, not 1.2"),
        ({"greeting": b"HTTP/1.1 400 Bad Request\r\n\r\n"}, "HTTP/1.1 400"),
        ({"server": "apollo/1.7"}, "unsupported kind of broker: apollo"),
    ],
)
def test_a_failed_login_gives_the_reason(
    inbox: Inbox, faults: dict[str, Any], problem: str
) -> None:
    with (
        FakeBroker(**{"server": ACTIVEMQ, **faults}) as broker,
        pytest.raises(SessionLost) as caught,
    ):
        logged_in(broker, inbox, user="sam", password=lambda: "wrong", reply_s=0.3)

    assert problem in str(caught.value)
    assert broker.subscriptions == []


def test_a_broker_that_falls_silent_is_disconnected(broker: FakeBroker, inbox: Inbox) -> None:
    broker.heart_beat = "100,100"
    with (
        closing(logged_in(broker, inbox, heart_beat_s=0.1)) as session,
        pytest.raises(SessionLost, match="no sign of life"),
    ):
        session.serve(threading.Event())
    assert broker.heard(HEART_BEAT)


def test_while_the_inbox_is_full_the_broker_is_not_lost(broker: FakeBroker) -> None:
    full = Inbox(1)
    broker.heart_beat = "100,100"
    with served(broker, full, heart_beat_s=0.1) as (_, lost):
        broker.deliver("0", "a0")
        eventually(lambda: len(full) == 1)
        before = len(broker.all_of(HEART_BEAT))
        for number in (1, 2):
            broker.deliver("0", f"a{number}")
        eventually(lambda: len(broker.all_of(HEART_BEAT)) > before + 8)
        waiting = len(full)
        batch = take(full, 3)

        assert (waiting, len(batch), lost) == (1, 3, [])


@pytest.mark.parametrize("unknown", [{"subscription": "9", "ack": "a1"}, {"subscription": "0"}, {}])
def test_a_message_without_an_ack_id(
    broker: FakeBroker, inbox: Inbox, unknown: dict[str, str]
) -> None:
    with served(broker, inbox):
        broker.send("MESSAGE", "body", **unknown)
        broker.deliver("0", "a2")
        batch = take(inbox, 2)
        for delivery in batch:
            acknowledge([delivery])

        assert broker.heard("ACK").headers["id"] == "a2"
    assert batch[0].message.headers["samRefused"] == "bad-frame"
    assert "without a known" in batch[0].message.headers["samRefusedText"]


def test_a_frame_without_a_known_end_is_delivered_at_the_last_attempt(inbox: Inbox) -> None:
    attempts: list[tuple[str, str]] = []

    def is_last_attempt(broker: str, message_id: str) -> bool:
        attempts.append((broker, message_id))
        return len(attempts) == 2

    for turn in (1, 2):
        with (
            FakeBroker(server=ACTIVEMQ) as broker,
            served(broker, inbox, is_last_attempt=is_last_attempt) as (_, lost),
        ):
            broker.deliver("0", "good")
            broker.deliver("0", "bad", "body", content_length="2")
            broker.deliver("0", "not-read")
            batch = take(inbox, turn)
            time.sleep(0.1)
            assert lost == []  # it waits for the acks
            acknowledge(batch)
            assert broker.heard("ACK").headers["id"] == ["good", "bad"][turn - 1]
            assert broker.heard("DISCONNECT")
        assert "does not end after its 2 bytes" in str(lost[0])
    assert attempts == [(AT, "bad")] * 2
    assert (batch[1].message.body, batch[1].message.headers["samRefused"]) == (b"body", "bad-frame")


@pytest.mark.parametrize("faked", [{}, {"content_length": "100"}, {"content_length": "9999999"}])
def test_a_heart_beat_within_a_frame_shows_that_its_length_is_faked(
    broker: FakeBroker, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, faked: dict[str, str]
) -> None:
    monkeypatch.setattr(stomp_session, "PAUSE_S", 0.1)
    with served(broker, inbox, is_last_attempt=lambda broker, message_id: True) as (_, lost):
        broker.deliver("0", "bad", "body", **faked)
        for _ in range(2):
            time.sleep(0.3)
            broker.push(b"\n")
        batch = take(inbox)
        acknowledge(batch)
        assert broker.heard("ACK").headers["id"] == "bad"
        if faked:
            eventually(lambda: lost)
            assert "ends before its" in str(lost[0])

    assert batch[0].message.body == b"body"
    assert ("samRefused" in batch[0].message.headers) == bool(faked)


SETTINGS = StompSettings("site-a", (METRICS,))


@contextmanager
def running(source: StompSource | StompLink, inbox: Inbox) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=source.run, args=(inbox, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(SOON_S)
        assert not thread.is_alive()


def without_delays() -> Iterator[float]:
    return repeat(0.01)


def source_of(
    resolve: Callable[[], Sequence[Address]] | None = None,
    settings: StompSettings = SETTINGS,
    host: str = "msg.example.org",
    port: int = 61613,
    owners: dict[Address, str] | None = None,
) -> StompSource:
    look_up = (lambda host, port: resolve()) if resolve else None
    url = Broker("stomp", host, port)
    return StompSource(url, settings, resolve=look_up, delays=without_delays, owners=owners)


def link_to(broker: FakeBroker, settings: StompSettings = SETTINGS, **more: Any) -> StompLink:
    url = Broker("stomp", *broker.address)
    delays = more.pop("delays", without_delays)
    return StompLink(url, broker.address, settings, delays, lambda: True, **more)


def with_headers(vhost: str = "/", **headers: str) -> StompSettings:
    subscription = Subscription(METRICS.destination, Stamp(), headers=headers)
    return StompSettings("site-a", (subscription,), vhost=vhost)


def test_all_addresses_behind_a_name_are_consumed_at_once_and_a_new_one_soon(
    broker: FakeBroker, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stomp, "LOOK_UP_EVERY_S", 0.05)
    with FakeBroker(server=RABBITMQ) as other, FakeBroker(server=ARTEMIS) as late:
        addresses = [broker.address, other.address]
        source = source_of(lambda: addresses)
        with running(source, inbox):
            eventually(lambda: other.subscriptions and not source.missing())
            addresses.append(late.address)
            eventually(lambda: late.subscriptions and not source.missing())
            broker.deliver("0", "a1")
            other.deliver("0", "b1")
            late.deliver("0", "c1", message_id="c1")

            assert {delivery.session.broker for delivery in take(inbox, 3)} == {source.name}


@pytest.mark.parametrize("works", [0, 1])
def test_of_two_families_of_addresses_the_one_that_works_is_used(
    broker: FakeBroker, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, works: int
) -> None:
    monkeypatch.setattr(stomp, "TRY_OTHER_S", 0.05)
    addresses = [("::1", 1)]
    addresses.insert(works, broker.address)
    source = source_of(lambda: addresses)
    with running(source, inbox):
        eventually(lambda: broker.subscriptions and not source.missing())
        broker.deliver("0", "a1")

        assert len(take(inbox)) == 1
    assert len(broker.subscriptions) == 1


def test_a_lost_connection_is_opened_again_and_its_deliveries_are_discarded(
    broker: FakeBroker, inbox: Inbox
) -> None:
    source = source_of(lambda: [broker.address])
    with running(source, inbox):
        eventually(lambda: not source.missing())
        broker.deliver("0", "a1")
        eventually(lambda: len(inbox) == 1)
        before = dict(inbox.reconnects)

        broker.drop()
        eventually(lambda: len(broker.subscriptions) == 2)
        broker.deliver("0", "a2")
        acknowledge(take(inbox))

        assert broker.heard("ACK").headers["id"] == "a2"
    assert (before, inbox.reconnects) == ({}, {source.name: 1})


def test_a_name_server_that_hangs_costs_one_thread_and_no_reconnect(
    broker: FakeBroker, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, queries, real = threading.Event(), list[str](), socket.getaddrinfo

    def getaddrinfo(host: str, port: int, *arguments: Any) -> Any:
        if not arguments[-1] & socket.AI_NUMERICHOST:
            queries.append(host)
            answers.wait(SOON_S)
            host = "127.0.0.1"
        return real(host, port, *arguments)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(stomp, "LOOK_UP_TIMEOUT_S", 0.05)
    source = source_of(port=broker.port)
    with running(source, inbox):
        eventually(lambda: "no answer in time" in "".join(source.missing()))
        time.sleep(0.3)  # several attempts
        while_it_hangs = len(queries)
        answers.set()
        eventually(lambda: not source.missing())
        assert broker.heard("CONNECT")
        answers.clear()
        broker.drop()
        assert broker.heard("CONNECT")
        eventually(lambda: not source.missing())
        answers.set()

    assert while_it_hangs == 1  # one thread waits for it, however often it is tried


def test_an_address_of_two_urls_is_consumed_once(broker: FakeBroker, inbox: Inbox) -> None:
    owners: dict[Address, str] = {}
    one, two = (
        source_of(lambda: [broker.address], host=f"{name}.example.org", owners=owners)
        for name in ("one", "two")
    )
    with running(one, inbox), running(two, inbox):
        eventually(lambda: not one.missing() and not two.missing())

        assert len(one._links) + len(two._links) == 1
        assert len(broker.logins) == 1


def test_a_refused_destination_does_not_affect_the_others(broker: FakeBroker, inbox: Inbox) -> None:
    broker.forbids_subscribing, broker.forbidden = "not authorized", SITES.destination
    source = source_of(lambda: [broker.address], StompSettings("site-a", (METRICS, SITES)))
    with running(source, inbox):
        eventually(lambda: "not authorized" in "".join(source.missing()))
        assert "siteGroup" in "".join(source.missing())
        eventually(lambda: len(broker.subscriptions) == 3)
        broker.deliver("0", "a1")

        assert len(take(inbox)) == 1


def test_a_message_that_stays_incomplete_is_reported_until_it_is_complete(
    broker: FakeBroker, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stomp_session, "PAUSE_S", 0.05)
    with running(link := link_to(broker), inbox):
        eventually(lambda: not link.problem)
        broker.push(b"MESSAGE\nsubscription:0\nack:1\nmessage-id:1\n\nhalf")
        eventually(lambda: "incomplete" in link.problem)
        broker.push(b" of it\0")
        eventually(lambda: not link.problem)


def test_a_corrected_password_is_used_soon(inbox: Inbox) -> None:
    passwords = ["wrong"]
    settings = StompSettings("site-a", (METRICS,), user="sam", password=lambda: passwords[-1])
    with FakeBroker(server=ACTIVEMQ, refuses_login="password is invalid") as broker:
        link = link_to(broker, settings)
        with running(link, inbox):
            eventually(lambda: "password is invalid" in link.problem)
            passwords.append("right")
            eventually(lambda: broker.logins[-1].headers["passcode"] == "right")
            broker.refuses_login = ""
            eventually(lambda: not link.problem)

    assert broker.logins[0].headers["passcode"] == "wrong"


def test_subscribe_has_the_added_headers_and_connect_the_virtual_host(inbox: Inbox) -> None:
    settings = with_headers("monitoring", **{"x-queue-type": "quorum"})
    with FakeBroker(server=RABBITMQ) as broker, running(link := link_to(broker, settings), inbox):
        eventually(lambda: not link.problem)

    headers = broker.subscriptions[0].headers
    assert broker.logins[0].headers["host"] == "monitoring"
    assert headers["x-queue-type"] == "quorum"
    assert headers["x-queue-name"] == "site-a.grid.probe.metricOutput"
    assert headers["ack"] == "client"


MADE_OTHERWISE = "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'site-a.x'"


@pytest.mark.parametrize(
    ("server", "header", "refusal", "problem"),
    [
        (RABBITMQ, "selector", "", "does not know the header selector"),
        (ACTIVEMQ, "x-queue-type", "", "does not know the header x-queue-type"),
        (RABBITMQ, "x-queue-type", MADE_OTHERWISE, "sam-consume subscription delete"),
    ],
)
def test_headers_that_a_broker_would_ignore_or_refuses_are_reported(
    inbox: Inbox, server: str, header: str, refusal: str, problem: str
) -> None:
    with FakeBroker(server=server, forbids_subscribing=refusal) as broker:
        link = link_to(broker, with_headers(**{header: "x"}))
        with running(link, inbox):
            eventually(lambda: problem in link.problem)

    assert bool(broker.subscriptions) == bool(refusal)


@pytest.mark.parametrize(
    ("destination", "covered"),
    [
        ("/topic/grid.*.metricOutput", "/topic/grid.sam-check.metricOutput"),
        ("/topic/*.*", "/topic/sam-check.sam-check"),
        ("/topic/grid.>", "/topic/grid.sam-check"),
        ("/topic/grid.#", "/topic/grid.sam-check"),
        ("/topic/a*b.c#", "/topic/a*b.c#"),
    ],
)
def test_a_check_uses_a_destination_of_the_wildcard(destination: str, covered: str) -> None:
    assert sent_to(destination) == covered


def test_each_destination_is_checked_on_a_subscription_that_ends_with_the_connection() -> None:
    with FakeBroker(server=ACTIVEMQ) as broker:
        settings = StompSettings("site-a", (METRICS, METRICS), client_id="site-a-check-1")

        trips = list(round_trips(parse_broker(broker.url), settings))

    assert [trip.proven for trip in trips] == ["round trip"] * 2
    # A broker may not have forgotten the last session when the next one begins.
    assert len({login.headers["client-id"] for login in broker.logins}) == 2
    assert {frame.headers["messageClass"] for frame in broker.taken} == {"sam-check"}
    assert not any("activemq.subscriptionName" in frame.headers for frame in broker.subscriptions)


@pytest.mark.parametrize(
    ("vouches", "stem"), [(True, "publishers can set JMSXUserID"), (False, "")]
)
def test_a_broker_that_lets_users_lie_must_not_vouch(vouches: bool, stem: str) -> None:
    with FakeBroker(server=ACTIVEMQ) as broker:
        settings = StompSettings("site-a", (METRICS,), vouches=vouches)

        (trip,) = round_trips(parse_broker(broker.url), settings)

    assert stem in (trip.problem or "")
    assert (trip.proven is None) == vouches


def test_a_subscription_that_nobody_may_read_is_deleted_and_its_messages_are_not_counted() -> None:
    with FakeBroker(server=ARTEMIS, forbids_subscribing="not authorized") as broker:
        where = ("site-a", broker.url, "/", METRICS.destination)
        [removal] = remove(MadeSubscription(*where, False, ARTEMIS, "x"), SETTINGS)

    assert (removal.existed, removal.lost) == (True, None)
