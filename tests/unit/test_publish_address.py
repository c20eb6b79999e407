"""From names to addresses."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from publisher import BrokerUnavailable, PublisherConfig, host_name, publish
from publisher.address import addresses_of
from publisher.deadline import Deadline
from publisher.host_name import this_host
from schema.broker import Broker, parse_broker
from tests.builders import metric_message
from tests.fake_broker import FakeBroker

real_getaddrinfo = socket.getaddrinfo


def resolves_to(monkeypatch: pytest.MonkeyPatch, *ips: str) -> None:
    """From now on every name has these addresses."""

    def answer(host: str, port: int, *arguments: Any) -> Any:
        if arguments[-1] & socket.AI_NUMERICHOST:
            return real_getaddrinfo(host, port, *arguments)
        return [found for ip in ips for found in real_getaddrinfo(ip, port, *arguments)]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


def ips_of(broker: Broker) -> list[str]:
    return [address.ip for address in addresses_of(broker, Deadline.after(5))]


def test_a_name_with_many_addresses_is_many_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    resolves_to(monkeypatch, "192.0.2.1", "192.0.2.2", "192.0.2.1")

    assert ips_of(parse_broker("stomp://msg.example.org")) == ["192.0.2.1", "192.0.2.2"]


def test_a_name_with_both_families_is_one_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    resolves_to(monkeypatch, "2001:db8::1", "192.0.2.1")

    assert ips_of(parse_broker("stomp://msg.example.org")) == ["192.0.2.1"]


def test_a_name_with_ipv6_alone_is_reached_there(monkeypatch: pytest.MonkeyPatch) -> None:
    resolves_to(monkeypatch, "2001:db8::1")

    assert ips_of(parse_broker("stomp://msg.example.org")) == ["2001:db8::1"]


def test_an_address_that_does_not_answer_leaves_the_others_of_the_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    resolves_to(monkeypatch, "127.0.0.9", "127.0.0.1")

    with FakeBroker() as broker:
        url = broker.url.replace("127.0.0.1", "msg.example.org")
        publication = publish([metric_message()], PublisherConfig((url,), spool=tmp_path / "spool"))

    assert [failure.broker for failure in publication.failures] == [f"{url} (127.0.0.9)"]
    assert str(publication.receipts[0].address) == f"{url} (127.0.0.1)"


def test_a_resolver_that_does_not_answer_costs_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hang(host: str, port: int, *arguments: Any) -> Any:
        if arguments[-1] & socket.AI_NUMERICHOST:
            raise socket.gaierror
        time.sleep(2)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    started = time.monotonic()

    with pytest.raises(BrokerUnavailable, match="not resolved: no answer in time"):
        addresses_of(parse_broker("stomp://msg.example.org"), Deadline.after(0.2))

    assert time.monotonic() - started < 1


@pytest.mark.parametrize(
    ("short", "full", "expected"),
    [
        ("wn1", "wn1.example.org", "wn1.example.org"),
        ("wn1", "localhost", "wn1"),
        ("wn1.example.org", "other", "wn1.example.org"),
    ],
)
def test_the_name_of_this_host_is_the_fullest_that_is_no_localhost(
    monkeypatch: pytest.MonkeyPatch, short: str, full: str, expected: str
) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename=short))
    monkeypatch.setattr(host_name, "_full_name", lambda name: full)

    assert this_host() == expected
