"""From names to addresses, and directories that are brokers."""

from __future__ import annotations

import _socket
import json
import os
import socket
import threading
from pathlib import Path
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
from tests.support.brokers.stand_in import HOST
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


def test_an_unavailable_address_does_not_affect_others(monkeypatch: pytest.MonkeyPatch) -> None:
    resolves_to(monkeypatch, "127.0.0.9", HOST)

    with FakeBroker() as broker:
        url = broker.url.replace(HOST, NAME)
        publication = publish(messages(1), config_for(url))

    assert [failure.broker for failure in publication.failures] == [f"{url} (127.0.0.9)"]
    assert str(publication.receipts[0].address) == f"{url} ({HOST})"


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


@pytest.mark.parametrize(
    ("url", "via_proxy"),
    [("stomp://msg.example.org", True), ("spool:///var/spool/sam", False)],
)
def test_a_broker_behind_a_proxy_or_in_a_directory_has_one_address_and_no_look_up(
    monkeypatch: pytest.MonkeyPatch, url: str, via_proxy: bool
) -> None:
    resolves_to(monkeypatch)
    broker = parse_broker(url)

    assert addresses_of(broker, SOON, via_proxy=via_proxy) == [BrokerAddress(broker)]
    assert str(BrokerAddress(broker)).startswith(url)


@pytest.mark.parametrize("url", ["stomp://192.0.2.7", "stomp://[2001:db8::7]"])
def test_an_ip_address_is_not_resolved(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    resolves_to(monkeypatch)
    broker = parse_broker(url)

    (address,) = addresses_of(broker, Deadline.after(-1))

    assert (address.ip, str(address)) == (broker.host, f"{url}:61613")


@pytest.mark.parametrize(
    "name", ["msg.invalid", "a..b", "x" * 64 + ".example.org"], ids=["unknown", "dots", "long"]
)
def test_a_broker_whose_name_is_not_resolved_is_unavailable(name: str) -> None:
    with pytest.raises(BrokerUnavailable, match="name resolution failed: ") as refusal:
        addresses_of(parse_broker(f"stomp://{name}"), SOON)

    assert refusal.value.broker == f"stomp://{name}:61613"
    assert len(str(refusal.value).splitlines()) == 1


def test_a_broker_with_two_names_has_one_identity() -> None:
    other = parse_broker("stomp://other.example.org")
    rest = parse_broker(f"activemq-rest+http://{NAME}:61613")
    here = BrokerAddress(NAMED, "192.0.2.1").identity

    assert here == BrokerAddress(other, "192.0.2.1").identity
    assert here != BrokerAddress(NAMED, "192.0.2.2").identity
    assert here != BrokerAddress(rest, "192.0.2.1").identity
    assert BrokerAddress(NAMED).identity != BrokerAddress(other).identity


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


# A directory queue as the broker


@pytest.fixture
def at(spool: DirectoryQueue) -> BrokerAddress:
    return BrokerAddress(Broker("spool", path=str(spool.path)))


def test_a_message_is_confirmed_once_its_element_exists_until_the_queue_is_full(
    spool: DirectoryQueue, at: BrokerAddress
) -> None:
    sent = messages(61)
    transport = spool_transport.connect(at, PublisherConfig(spool_max_messages=60), SOON)
    confirmed = []

    with pytest.raises(BrokerUnavailable, match="is full"):
        for position in transport.send(sent, SOON):
            assert spool.count() > position
            confirmed.append(position)

    assert confirmed == [*range(60)]
    assert [spool.read(name) for name in spool.names()] == sent[:60]


def test_preview_and_round_trip_leave_nothing(spool: DirectoryQueue, at: BrokerAddress) -> None:
    message = metric_message()

    shown = spool_transport.preview(at.broker, PublisherConfig(), message)
    assert json.loads(shown)["header"] == dict(message.headers)
    assert not spool.path.exists()

    assert spool_transport.round_trip(at, PublisherConfig(), message, SOON) == "round trip"
    assert [path for path in spool.path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_is_not_a_directory_is_an_unavailable_broker(
    spool: DirectoryQueue, at: BrokerAddress, kind: str
) -> None:
    spool.path.symlink_to(Path.cwd()) if kind == "link" else spool.path.write_text("")

    with pytest.raises(BrokerUnavailable, match=r"is (a symbolic link|not a directory)"):
        spool_transport.round_trip(at, PublisherConfig(), metric_message(), SOON)
    with pytest.raises(BrokerUnavailable, match=r"is (a symbolic link|not a directory)"):
        list(spool_transport.connect(at, PublisherConfig(), SOON).send(messages(1), SOON))
