"""From names to addresses."""

from __future__ import annotations

import _socket
import os
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sam_pipeline.publisher import BrokerUnavailable, PublisherConfig, publish
from sam_pipeline.publisher.brokers.address import BrokerAddress, addresses_of
from sam_pipeline.publisher.probe.host_name import this_host
from sam_pipeline.schema.net.broker_url import Broker, parse_broker
from sam_pipeline.schema.net.deadline import Deadline
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.builders import metric_message

real_getaddrinfo = socket.getaddrinfo


def resolves_to(monkeypatch: pytest.MonkeyPatch, *ips: str) -> None:
    """Make every name resolve to these addresses."""

    def answer(host: str, port: int, *arguments: Any) -> Any:
        if arguments[-1] & socket.AI_NUMERICHOST:
            return real_getaddrinfo(host, port, *arguments)
        return [info for ip in ips for info in real_getaddrinfo(ip, port, *arguments)]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


def ips_of(broker: Broker) -> list[str]:
    return [address.ip for address in addresses_of(broker, Deadline.after(5))]


def test_a_name_with_many_addresses_is_many_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    resolves_to(monkeypatch, "192.0.2.1", "192.0.2.2", "192.0.2.1")

    assert ips_of(parse_broker("stomp://msg.example.org")) == ["192.0.2.1", "192.0.2.2"]


def test_a_name_with_both_families_is_one_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    resolves_to(monkeypatch, "2001:db8::1", "192.0.2.1")

    assert ips_of(parse_broker("stomp://msg.example.org")) == ["192.0.2.1"]


def test_a_name_with_only_ipv6_addresses_is_reached_by_ipv6(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolves_to(monkeypatch, "2001:db8::1")

    assert ips_of(parse_broker("stomp://msg.example.org")) == ["2001:db8::1"]


def test_an_unavailable_address_does_not_affect_the_others_of_the_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    resolves_to(monkeypatch, "127.0.0.9", "127.0.0.1")

    with FakeBroker() as broker:
        url = broker.url.replace("127.0.0.1", "msg.example.org")
        publication = publish([metric_message()], PublisherConfig((url,), spool=tmp_path / "spool"))

    assert [failure.broker for failure in publication.failures] == [f"{url} (127.0.0.9)"]
    assert str(publication.receipts[0].address) == f"{url} (127.0.0.1)"


def test_a_resolver_that_does_not_answer_ends_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hang(host: str, port: int, *arguments: Any) -> Any:
        if arguments[-1] & socket.AI_NUMERICHOST:
            raise socket.gaierror
        time.sleep(2)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    started = time.monotonic()

    with pytest.raises(BrokerUnavailable, match="resolution failed: no answer in time"):
        addresses_of(parse_broker("stomp://msg.example.org"), Deadline.after(0.2))

    assert time.monotonic() - started < 1


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


def never(*arguments: Any) -> Any:
    raise AssertionError(f"asked the resolver for {arguments[0]}")


def test_a_broker_behind_a_proxy_has_one_address_and_its_name_is_not_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", never)
    broker = parse_broker("stomp://msg.example.org")

    assert addresses_of(broker, Deadline.after(5), via_proxy=True) == [BrokerAddress(broker)]
    assert str(BrokerAddress(broker)) == "stomp://msg.example.org:61613"


def test_a_spool_has_one_address_and_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", never)
    broker = parse_broker("spool:///var/spool/sam")

    assert addresses_of(broker, Deadline.after(5)) == [BrokerAddress(broker)]


@pytest.mark.parametrize("url", ["stomp://192.0.2.7", "stomp://[2001:db8::7]"])
def test_an_ip_address_is_not_resolved(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    def only_numbers(host: str, port: int, *arguments: Any) -> Any:
        assert arguments[-1] == socket.AI_NUMERICHOST
        return real_getaddrinfo(host, port, *arguments)

    monkeypatch.setattr(socket, "getaddrinfo", only_numbers)
    broker = parse_broker(url)

    (address,) = addresses_of(broker, Deadline.after(-1))

    assert address.ip == broker.host
    assert str(address) == f"{url}:61613"


def test_a_name_with_both_families_uses_its_ipv4_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolves_to(monkeypatch, "2001:db8::1", "192.0.2.1", "2001:db8::2", "192.0.2.2")

    assert ips_of(parse_broker("stomp://msg.example.org")) == ["192.0.2.1", "192.0.2.2"]


@pytest.mark.parametrize(
    "name", ["msg.invalid", "a..b", "x" * 64 + ".example.org"], ids=["unknown", "dots", "long"]
)
def test_a_broker_whose_name_is_not_resolved_is_unavailable(name: str) -> None:
    broker = parse_broker(f"stomp://{name}")

    with pytest.raises(BrokerUnavailable, match="name resolution failed: ") as refusal:
        addresses_of(broker, Deadline.after(5))

    assert refusal.value.broker == f"stomp://{name}:61613"
    assert len(str(refusal.value).splitlines()) == 1


def test_a_broker_with_two_names_has_one_identity() -> None:
    first, second = (parse_broker(f"stomp://{name}.example.org") for name in ("one", "other"))
    rest = parse_broker("activemq-rest+http://one.example.org:61613")

    assert BrokerAddress(first, "192.0.2.1").identity == BrokerAddress(second, "192.0.2.1").identity
    assert BrokerAddress(first, "192.0.2.1").identity != BrokerAddress(first, "192.0.2.2").identity
    assert BrokerAddress(first).identity != BrokerAddress(second).identity
    assert BrokerAddress(first, "192.0.2.1").identity != BrokerAddress(rest, "192.0.2.1").identity


def test_a_hanging_resolver_leaves_time_for_the_next_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over = threading.Event()

    def hang(host: str, port: int, *arguments: Any) -> Any:
        if host == "msg.example.org" and not arguments[-1] & socket.AI_NUMERICHOST:
            over.wait(5)
        return real_getaddrinfo(host, port, *arguments)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        with FakeBroker() as broker:
            config = PublisherConfig(("stomp://msg.example.org", broker.url), timeout_s=0.6)
            publication = publish([metric_message()], config)
    finally:
        over.set()

    assert len(publication.receipts) == 1
    assert "resolution failed: no answer in time" in publication.failures[0].reason
