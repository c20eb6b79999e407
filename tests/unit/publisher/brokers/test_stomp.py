"""STOMP frames, answers and round trips; from names to addresses; directories that are brokers."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from sam_pipeline.publisher import BrokerUnavailable, MessageRejected, publish
from sam_pipeline.publisher.brokers.spool import SpoolTransport
from sam_pipeline.publisher.brokers.stomp import StompTransport
from sam_pipeline.publisher.brokers.transport import outcomes
from sam_pipeline.publisher.delivery.route import addresses_of
from sam_pipeline.publisher.probe.values import this_host
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker import Broker, SpoolLimits, Target, parse_broker
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.sender import MAX_UNCONFIRMED
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker, Frame
from tests.support.brokers.fault_proxy import FaultProxy
from tests.support.brokers.stand_in import HOST
from tests.support.builders import metric_message
from tests.support.publishing import config_for, ids, messages

GREETING = b"CONNECTED\nversion:1.2\n\n\0"


def address_of(broker: FakeBroker | FaultProxy) -> Target:
    return Target(parse_broker(broker.url), HOST)


def to_queue(count: int) -> list[Message]:
    return messages(count, destination="/queue/x")


def outcome_of(
    broker: FakeBroker | FaultProxy, sent: Sequence[Message], timeout_s: float = 30
) -> list[tuple[int, str | None]]:
    """Each position with the reason of its rejection, if any."""
    address, deadline = address_of(broker), Deadline.after(timeout_s)
    with closing(StompTransport(address, deadline)) as transport:
        settled = outcomes(transport, sent, deadline)
        return [(position, rejection and rejection.reason) for position, rejection in settled]


@pytest.mark.parametrize(
    ("greeting", "stem"),
    [
        (b"CONNECTED\n\n\0", "speaks STOMP 1.0, not 1.2"),
        (b"CONNECTED\nversion:1.1\n\n\0", "speaks STOMP 1.1, not 1.2"),
        (
            b"ERROR\nversion:1.0,1.1\nmessage:Unsupported version\n\n\0",
            "Unsupported version: it speaks STOMP 1.0,1.1, not 1.2",
        ),
        (b"HTTP/1.1 400 Bad Request\r\n", r"not a STOMP frame: 'HTTP/1.1 400 Bad Request\r\n'"),
        (b"\x15\x03\x01\x00", "it speaks TLS on this port: use stomp+ssl://"),
        (b"CONNECTED\nversion:" + b"1" * 70_000, "the headers of CONNECTED exceed 65536 bytes"),
        (b"CONNECTED\nversion:", "no answer"),
    ],
)
def test_a_broker_that_does_not_speak_stomp_1_2_is_refused(greeting: bytes, stem: str) -> None:
    deadline = Deadline.after(0.3 if stem == "no answer" else 30)

    with FakeBroker(greeting=greeting) as broker, pytest.raises(BrokerUnavailable) as caught:
        StompTransport(address_of(broker), deadline)

    assert stem in caught.value.reason
    assert deadline.expired == (stem == "no answer")  # the others are refused at once


def test_a_connection_closed_between_two_messages_is_opened_again() -> None:
    sent = to_queue(2)

    with FakeBroker() as broker, FaultProxy(broker.port) as proxy:
        transport = StompTransport(address_of(proxy), Deadline.after(30))
        assert list(transport.send(sent[:1], Deadline.after(30))) == [0]
        proxy.cut()
        assert list(transport.send(sent[1:], Deadline.after(30))) == [0]
        transport.close()

    assert (broker.ids, broker.connections) == (ids(sent), 2)


def test_a_receipt_after_an_error_confirms_nothing() -> None:
    answers = b"ERROR\nmessage:not authorized\n\n\0RECEIPT\nreceipt-id:1\n\n\0"

    with FakeBroker(greeting=GREETING + answers) as broker:
        assert outcome_of(broker, to_queue(1)) == [(0, "not authorized")]


@pytest.mark.parametrize("server", ["RabbitMQ/3.10", "ActiveMQ/6.3.1"])
def test_at_most_a_window_of_messages_is_unconfirmed(server: str) -> None:
    refused = pytest.raises(BrokerUnavailable, match="no answer")
    with FakeBroker(server=server, eats_receipts=True) as broker, refused:
        outcome_of(broker, to_queue(2 * MAX_UNCONFIRMED), timeout_s=1.0)

    assert len(broker.taken) == MAX_UNCONFIRMED


def test_a_repeatedly_forbidden_destination_is_not_tried_for_each_message() -> None:
    forbidden = messages(40, destination="/topic/forbidden")
    allowed = messages(40, destination="/topic/allowed")
    mixed = [message for pair in zip(forbidden, allowed, strict=True) for message in pair]

    def refuse(frame: Frame) -> str:
        return "access denied" if frame.headers["destination"] == "/topic/forbidden" else ""

    with FakeBroker(rejects=refuse) as broker:
        settled = dict(outcome_of(broker, mixed))

    assert [settled[position] for position in range(80)] == ["access denied", None] * 40
    assert {*broker.ids} == {*ids(allowed)}
    assert broker.connections < 15


def proven(destination: str, timeout_s: float = 30, **faults: Any) -> tuple[str, FakeBroker]:
    """What a round trip proved, and the broker with these faults."""
    with FakeBroker(**faults) as broker:
        message, deadline = metric_message(destination=destination), Deadline.after(timeout_s)
        return StompTransport.round_trip(address_of(broker), message, deadline), broker


def test_a_round_trip_consumes_nothing_else_from_a_queue() -> None:
    proof, broker = proven("/queue/x", queue=[Frame("SEND", {"samMessageId": "real"})])

    assert proof.startswith("confirmed, not read back: another message")
    assert broker.queue[0].headers["samMessageId"] == "real"
    assert len(broker.queue) == 2


@pytest.mark.parametrize(
    ("destination", "fault", "stem"),
    [
        ("/topic/x", {"forbids_subscribing": "not authorized to read"}, "not allowed to subscribe"),
        ("/queue/x", {"loses": True}, "a consumer may have been faster"),
    ],
)
def test_a_receipt_is_enough(destination: str, fault: dict[str, Any], stem: str) -> None:
    proof, broker = proven(destination, 1.0, **fault)

    assert proof.startswith(f"confirmed, not read back: {stem}")
    assert len(broker.taken) == 1


@pytest.mark.parametrize(
    ("error", "fault", "stem"),
    [
        (MessageRejected, {"forbids_subscribing": "NOT_FOUND - no queue 'x'"}, "no queue 'x'"),
        (BrokerUnavailable, {"loses": True}, "did not come back from /topic/x"),
        (MessageRejected, {"rejects": lambda frame: "access refused"}, "access refused"),
    ],
)
def test_a_destination_that_takes_or_delivers_nothing_fails_the_round_trip(
    error: type[Exception], fault: dict[str, Any], stem: str
) -> None:
    with pytest.raises(error, match=stem):
        proven("/topic/x", 2.0, **fault)


real_getaddrinfo = socket.getaddrinfo
NAME = "msg.example.org"
NAMED = parse_broker(f"stomp://{NAME}")
SOON = Deadline.after(3600)


def resolves_to(monkeypatch: pytest.MonkeyPatch, *ips: str) -> None:
    """Make every name resolve to these addresses; without any, it is an error to ask for one."""

    def answer(host: str, port: int, *arguments: Any) -> Any:
        if arguments[-1] & socket.AI_NUMERICHOST:
            return real_getaddrinfo(host, port, *arguments)
        assert ips, f"asked the resolver for {host}"
        return [info for ip in ips for info in real_getaddrinfo(ip, port, *arguments)]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


@pytest.mark.parametrize(
    ("found", "used"),
    [
        (["192.0.2.1", "192.0.2.2", "192.0.2.1"], ["192.0.2.1", "192.0.2.2"]),
        (["2001:db8::1", "192.0.2.1", "2001:db8::1"], ["2001:db8::1", "192.0.2.1"]),
        (["2001:db8::1"], ["2001:db8::1"]),
    ],
)
def test_a_name_with_several_addresses_is_several_brokers(
    monkeypatch: pytest.MonkeyPatch, found: list[str], used: list[str]
) -> None:
    resolves_to(monkeypatch, *found)

    assert [target.ip for target in addresses_of(Target(NAMED), SOON)] == used


@pytest.mark.parametrize("dead", ["192.0.2.1", "2001:db8::1"])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_broker_is_reached_by_the_family_of_addresses_that_works(
    monkeypatch: pytest.MonkeyPatch, dead: str, is_first: bool
) -> None:
    with FakeBroker() as broker:
        found = (dead, broker.host) if is_first else (broker.host, dead)
        resolves_to(monkeypatch, *found)
        url = f"stomp://{NAME}:{broker.port}"
        publication = publish(messages(1), config_for(url, timeout_s=4.0, spool=None))

    assert publication.total == 1 == len(broker.ids)


def test_a_hanging_resolver_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def hang(host: str, port: int, *arguments: Any) -> Any:
        if host == NAME and not arguments[-1] & socket.AI_NUMERICHOST:
            over.wait(60)
        return real_getaddrinfo(host, port, *arguments)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        with FakeBroker() as broker:
            publication = publish(messages(1), config_for(str(NAMED), broker.url, timeout_s=1.0))
    finally:
        over.set()

    assert len(publication.receipts) == 1
    assert "resolution failed: no answer in time" in publication.failures[0].reason


@pytest.mark.parametrize("name", ["msg.invalid", "a..b", f"{'x' * 64}.example.org"])
def test_a_broker_whose_name_is_not_resolved_is_unavailable(name: str) -> None:
    with pytest.raises(BrokerUnavailable, match=f"{name}:61613.*name resolution failed: "):
        addresses_of(Target(parse_broker(f"stomp://{name}")), SOON)


@pytest.mark.parametrize("host", ["spool:///in", "stomp://192.0.2.7", "stomp://[2001:db8::7]"])
def test_only_a_name_is_looked_up(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    resolves_to(monkeypatch)
    target = Target(parse_broker(host))
    behind_a_proxy = Target(NAMED, proxy="http://proxy.example.org")

    assert addresses_of(target, SOON) == [target._replace(ip=target.broker.host)]
    assert addresses_of(behind_a_proxy, SOON) == [behind_a_proxy]


@pytest.mark.parametrize(
    ("full", "expected"), [("wn1.example.org", "wn1.example.org"), ("localhost.localdomain", "wn1")]
)
def test_the_name_of_this_host_is_the_longest_except_localhost(
    monkeypatch: pytest.MonkeyPatch, full: str, expected: str
) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="wn1"))
    monkeypatch.setattr(
        "sam_pipeline.publisher.probe.values.gethostbyaddr", lambda name: (full, [], [])
    )

    assert this_host() == expected


def test_elements_are_confirmed_until_it_is_full(spool: DirectoryQueue) -> None:
    sent = messages(61)
    target = Target(Broker("spool", path=str(spool.path)), limits=SpoolLimits(max_messages=60))
    transport = SpoolTransport(target, SOON)
    confirmed = []

    with pytest.raises(BrokerUnavailable, match="is full"):
        for position in transport.send(sent, SOON):
            assert spool.count() > position
            confirmed.append(position)

    assert confirmed == [*range(60)]
    assert [spool.read(name) for name in spool.names()] == sent[:60]
