"""Links, sources and round trips: addresses behind a name, reconnects, refused subscriptions."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, repeat
from typing import Any

import pytest

from sam_pipeline.consumer.core.inbox import Inbox, acknowledge
from sam_pipeline.consumer.sources.stomp import source as stomp
from sam_pipeline.consumer.sources.stomp.link import LIVED_S, Address, StompLink, StompSettings
from sam_pipeline.consumer.sources.stomp.round_trip import round_trips, sent_to
from sam_pipeline.consumer.sources.stomp.session import Subscription
from sam_pipeline.consumer.sources.stomp.source import StompSource
from sam_pipeline.schema.messages.foreign import Stamp
from sam_pipeline.schema.net.broker_url import Broker, parse_broker
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.waiting import SOON_S, eventually
from tests.unit.consumer.sources.stomp.test_session import (
    ACTIVEMQ,
    ARTEMIS,
    METRICS,
    RABBITMQ,
    SITES,
    take,
)
from tests.unit.consumer.sources.stomp.test_session import broker as broker
from tests.unit.consumer.sources.stomp.test_session import inbox as inbox
from tests.unit.consumer.sources.stomp.test_session import quick as quick

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


@pytest.mark.parametrize(("lived_s", "sequences"), [(LIVED_S - 1, 1), (LIVED_S, 4)])
def test_delays_grow_after_short_sessions(
    broker: FakeBroker, inbox: Inbox, lived_s: float, sequences: int
) -> None:
    made: list[Iterator[float]] = []

    def delays() -> Iterator[float]:
        made.append(without_delays())
        return made[-1]

    now = count(step=lived_s)  # each session begins and ends with one look at the clock
    link = link_to(broker, delays=delays, clock=now.__next__)
    with running(link, inbox):
        for turn in range(4):  # again, after each loss
            broker.heard("SUBSCRIBE")
            eventually(lambda: not link.problem)
            if turn < 3:
                broker.drop()

    assert len(made) == sequences


def test_an_absent_broker_is_logged_once(inbox: Inbox, caplog: pytest.LogCaptureFixture) -> None:
    with FakeBroker() as broker:
        nobody = broker.address
    attempts: list[Address] = []

    def resolve() -> Sequence[Address]:
        attempts.append(nobody)
        return [nobody]

    source = source_of(resolve)
    with running(source, inbox):
        eventually(lambda: len(attempts) > 5)
        missing = source.missing()
    assert missing == [f"{source.name} at 127.0.0.1 (connection refused)"]
    assert sum("connection refused" in text for text in caplog.messages) == 1


def test_a_name_server_that_hangs_costs_one_thread_and_no_reconnect(
    broker: FakeBroker,
    inbox: Inbox,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = threading.Event()
    queries: list[str] = []
    real = socket.getaddrinfo

    def getaddrinfo(host: str, port: int, *arguments: Any) -> Any:
        if not arguments[-1] & socket.AI_NUMERICHOST:
            queries.append(host)
            answers.wait(SOON_S)
            host = "127.0.0.1"
        return real(host, port, *arguments)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(stomp, "LOOK_UP_TIMEOUT_S", 0.05)
    foreground = {thread for thread in threading.enumerate() if not thread.daemon}
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
    assert sum("no answer in time; trying again" in text for text in caplog.messages) == 1
    eventually(
        lambda: {thread for thread in threading.enumerate() if not thread.daemon} <= foreground
    )


def test_an_address_without_its_name_is_not_tried_again(broker: FakeBroker, inbox: Inbox) -> None:
    addresses = [broker.address]
    source = source_of(lambda: addresses)
    with running(source, inbox):
        eventually(lambda: not source.missing())
        ((_, thread),) = source._links.values()

        addresses.clear()
        broker.drop()
        thread.join(SOON_S)

        assert not thread.is_alive()


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


def test_a_corrected_password_is_used_soon(inbox: Inbox) -> None:
    passwords = ["wrong"]
    settings = StompSettings("site-a", (METRICS,), user="sam", password=lambda: passwords[-1])
    with FakeBroker(server=ACTIVEMQ, refuses_login="password is invalid") as broker:
        link = link_to(broker, settings)
        with running(link, inbox):
            eventually(lambda: "password is invalid" in link.problem)
            passwords.append("right")
            broker.refuses_login = ""
            eventually(lambda: not link.problem)

    logins = [login.headers["passcode"] for login in broker.logins]
    assert (logins[0], logins[-1]) == ("wrong", "right")


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
        (RABBITMQ, "x-queue-type", MADE_OTHERWISE, "sam-consume unsubscribe"),
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
    client_ids = [login.headers["client-id"] for login in broker.logins]
    assert len(set(client_ids)) == 2
    assert all(client_id.startswith("site-a-check-1-") for client_id in client_ids)
    assert {frame.headers["messageClass"] for frame in broker.taken} == {"sam-check"}
    assert not any("activemq.subscriptionName" in frame.headers for frame in broker.subscriptions)


@pytest.mark.parametrize(
    ("vouches", "stem"), [(True, "publishers can set JMSXUserID"), (False, "")]
)
def test_a_broker_that_lets_users_lie_must_not_vouch(vouches: bool, stem: str) -> None:
    with FakeBroker(server=ACTIVEMQ) as broker:
        names = (str(parse_broker(broker.url)),) * vouches
        settings = StompSettings("site-a", (METRICS,), vouches=names)

        (trip,) = round_trips(parse_broker(broker.url), settings)

    assert stem in (trip.problem or "")
    assert (trip.proven is None) == vouches
