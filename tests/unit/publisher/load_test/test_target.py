"""Which broker a load test may burden."""

from __future__ import annotations

import socket

import pytest

from sam_pipeline.publisher.errors import BrokerUnavailable, PublishUsage
from sam_pipeline.publisher.load_test.target import leads_to_loopback, target_of
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.net.deadline import Deadline

LOOPBACK, OTHER = "127.0.0.1", "192.0.2.7"
NAME = "msg.example.org"


def target(*brokers: str, confirmed: str | None = None, **settings: str) -> str:
    config = PublisherConfig(brokers=brokers, **settings)
    return target_of(config, confirmed, Deadline.after(5)).ip


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The addresses of each name; an address has itself."""
    known: dict[str, list[str]] = {}

    def getaddrinfo(host: str, port: int, *_: object) -> list[tuple[object, ...]]:
        ips = known.get(host, [host])
        families = [socket.AF_INET6 if ":" in ip else socket.AF_INET for ip in ips]
        return [
            (family, socket.SOCK_STREAM, 6, "", (ip, port))
            for family, ip in zip(families, ips, strict=True)
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return known


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]"])
def test_loopback_is_allowed(host: str) -> None:
    assert target(f"stomp://{host}:61613") == host.strip("[]")


@pytest.mark.parametrize("ip", [OTHER, "0.0.0.0", "::", "::ffff:192.0.2.7", "fe80::1", "10.0.0.1"])
def test_no_other_address_is_loopback(ip: str) -> None:
    assert not leads_to_loopback(ip)


def test_a_broker_beyond_loopback_is_refused_unless_it_is_named() -> None:
    url = f"stomp://{OTHER}:61613"

    with pytest.raises(PublishUsage, match=f"nothing was sent.* --yes-this-broker {OTHER}"):
        target(url)
    assert target(url, confirmed=OTHER) == OTHER
    assert target(url, confirmed=f"{OTHER}:61613") == OTHER


@pytest.mark.parametrize(
    "ips", [[LOOPBACK, OTHER], ["::1", "2001:db8::1"], [LOOPBACK, "2001:db8::1"]]
)
def test_every_address_of_a_name_counts(names: dict[str, list[str]], ips: list[str]) -> None:
    names[NAME] = ips

    with pytest.raises(PublishUsage, match=f"{ips[1]} is not on loopback"):
        target(f"stomp://{NAME}")


def test_a_name_for_loopback_alone_is_allowed(names: dict[str, list[str]]) -> None:
    names[NAME] = ["::1", LOOPBACK]

    assert target(f"stomp://{NAME}") == LOOPBACK


@pytest.mark.parametrize("confirmed", ["example.org", "other.example.org", f"{NAME}:61614"])
def test_the_name_must_be_that_of_the_broker(names: dict[str, list[str]], confirmed: str) -> None:
    names[NAME] = [OTHER]

    with pytest.raises(PublishUsage, match=f"names {confirmed}, but the broker is {NAME}:61613"):
        target(f"stomp://{NAME}", confirmed=confirmed)


def test_a_name_that_does_not_resolve_is_no_broker() -> None:
    with pytest.raises(BrokerUnavailable, match="name resolution failed"):
        target("stomp://no-such-host.invalid")


@pytest.mark.parametrize(
    "url",
    [
        "activemq-rest+http://localhost:8161",
        "rabbitmq-api+http://localhost/%2F/amq.topic",
        "ams+https://localhost/v1/projects/P",
        "sam+http://localhost",
        "spool:///tmp/spool",
    ],
)
def test_other_kinds_of_brokers_are_refused(url: str) -> None:
    with pytest.raises(PublishUsage, match="a load test also consumes, which needs STOMP"):
        target(url)


def test_there_must_be_one_broker() -> None:
    with pytest.raises(PublishUsage, match="no broker to test"):
        target()
    with pytest.raises(PublishUsage, match="choose one of stomp://a:61613, stomp://b:61613"):
        target("stomp://a", "stomp://b")


def test_a_proxy_is_refused() -> None:
    with pytest.raises(PublishUsage, match="does not go through a proxy"):
        target("stomp://127.0.0.1", proxy="http://proxy.example.org:3128")
