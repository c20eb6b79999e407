"""From names to addresses, and directories that are brokers."""

from __future__ import annotations

import _socket
import os
import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from sam_pipeline.publisher import BrokerUnavailable, PublisherConfig, publish
from sam_pipeline.publisher.brokers import spool as spool_transport
from sam_pipeline.publisher.brokers.address import BrokerAddress, addresses_of
from sam_pipeline.publisher.probe.host_name import this_host
from sam_pipeline.schema.net.broker_url import Broker, parse_broker
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.builders import metric_message
from tests.support.publishing import config_for, messages

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
        (["2001:db8::1", "192.0.2.1", "2001:db8::2", "192.0.2.2"], ["192.0.2.1", "192.0.2.2"]),
        (["2001:db8::1"], ["2001:db8::1"]),
    ],
    ids=["many", "both families", "IPv6 alone"],
)
def test_a_name_with_several_addresses_is_several_brokers(
    monkeypatch: pytest.MonkeyPatch, found: list[str], used: list[str]
) -> None:
    resolves_to(monkeypatch, *found)

    assert [address.ip for address in addresses_of(NAMED, SOON)] == used


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
        addresses_of(parse_broker(f"stomp://{name}"), SOON)


@pytest.mark.parametrize("host", ["spool:///in", "stomp://192.0.2.7", "stomp://[2001:db8::7]"])
def test_only_a_name_is_looked_up(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    resolves_to(monkeypatch)
    broker = parse_broker(host)

    assert addresses_of(broker, SOON) == [BrokerAddress(broker, broker.host)]
    assert addresses_of(NAMED, SOON, via_proxy=True) == [BrokerAddress(NAMED)]


@pytest.mark.parametrize(
    ("short", "full", "expected"),
    [
        ("wn1", "wn1.example.org", "wn1.example.org"),
        ("wn1", "localhost", "wn1"),
        ("wn1", "localhost.localdomain", "wn1"),
        ("wn1.example.org", "other", "wn1.example.org"),
    ],
)
def test_the_name_of_this_host_is_the_longest_except_localhost(
    monkeypatch: pytest.MonkeyPatch, short: str, full: str, expected: str
) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename=short))
    monkeypatch.setattr(_socket, "gethostbyaddr", lambda name: (full, [], []))

    assert this_host() == expected


@pytest.fixture
def at(spool: DirectoryQueue) -> BrokerAddress:
    return BrokerAddress(Broker("spool", path=str(spool.path)))


def test_elements_are_confirmed_until_it_is_full(spool: DirectoryQueue, at: BrokerAddress) -> None:
    sent = messages(61)
    transport = spool_transport.connect(at, PublisherConfig(spool_max_messages=60), SOON)
    confirmed = []

    with pytest.raises(BrokerUnavailable, match="is full"):
        for position in transport.send(sent, SOON):
            assert spool.count() > position
            confirmed.append(position)

    assert confirmed == [*range(60)]
    assert [spool.read(name) for name in spool.names()] == sent[:60]


def test_a_file_in_its_place_makes_it_unavailable(spool: DirectoryQueue, at: BrokerAddress) -> None:
    spool.path.write_text("a file")

    with pytest.raises(BrokerUnavailable, match="is not a directory"):
        spool_transport.round_trip(at, PublisherConfig(), metric_message(), SOON)
    with pytest.raises(BrokerUnavailable, match="is not a directory"):
        list(spool_transport.connect(at, PublisherConfig(), SOON).send(messages(1), SOON))
