"""The one broker that a load test may burden: on loopback, unless it was named on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address
from typing import Optional

from sam_pipeline.publisher.brokers.connection import usable
from sam_pipeline.publisher.errors import BrokerUnavailable, PublishUsage
from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.schema.net.broker_url import STOMP, Broker
from sam_pipeline.schema.net.channel import error_text
from sam_pipeline.schema.net.deadline import Deadline, within
from sam_pipeline.schema.net.target import Target

OPTION = "--yes-this-broker"


def target_of(config: PublisherConfig, confirmed: Optional[str], deadline: Deadline) -> Target:
    """The address to test, which all connections use: the name is not looked up again.

    Args:
        confirmed: the host that the operator named, for a broker beyond loopback.

    Raises:
        PublishUsage: there is not exactly one STOMP broker, or it may not be tested.
        BrokerUnavailable: its name does not resolve, or not in time.
    """
    target = _only_target(config.targets)
    broker = target.broker
    if usable(target, target.find_proxy) is not None:
        raise PublishUsage(
            f"{broker}: a load test does not go through a proxy: add {broker.host} to no_proxy"
        )
    if confirmed is not None and confirmed.lower() not in (broker.host.lower(), broker.netloc):
        raise PublishUsage(f"{OPTION} names {confirmed}, but the broker is {broker.netloc}")
    addresses = all_addresses(broker, deadline)
    outside = [ip for ip in addresses if not leads_to_loopback(ip)]
    if outside and confirmed is None:
        where = ", ".join(outside) if outside != [broker.host] else "its address"
        verb = "are" if len(outside) > 1 else "is"
        raise PublishUsage(
            f"{broker}: {where} {verb} not on loopback, so nothing was sent: a load test disturbs"
            f" all users of a broker; to test it all the same, add {OPTION} {broker.host}"
        )
    return target._replace(ip=addresses[0])


def all_addresses(broker: Broker, deadline: Deadline) -> list[str]:
    """The addresses of its name, of both families; those of IPv4 come first.

    Raises:
        BrokerUnavailable: the name does not resolve, or not in time.
    """
    import socket

    try:
        query = (broker.host, broker.port, 0, socket.SOCK_STREAM)
        infos = within(deadline, socket.getaddrinfo, *query)
    except (OSError, UnicodeError) as error:
        reason = f"name resolution failed: {error_text(error)}"
        raise BrokerUnavailable(broker, reason) from error
    infos.sort(key=lambda info: info[0] != socket.AF_INET)
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


def leads_to_loopback(ip: str) -> bool:
    """Whether an address is this machine's alone."""
    address = ip_address(ip)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def _only_target(targets: Sequence[Target]) -> Target:
    if not targets:
        raise PublishUsage("no broker to test: use --broker stomp://HOST:PORT")
    if len(targets) > 1:
        listed = ", ".join(map(str, targets))
        raise PublishUsage(f"a load test has one broker: choose one of {listed} with --broker")
    (target,) = targets
    if target.broker.kind != STOMP:
        raise PublishUsage(
            f"{target}: a load test also consumes, which needs STOMP: use the stomp:// or"
            " stomp+ssl:// port of the broker"
        )
    return target
