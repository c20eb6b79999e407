"""From broker URLs to addresses: a name that resolves to many is many brokers."""

from __future__ import annotations

from typing import Any, NamedTuple

from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.probe.host_name import within
from sam_pipeline.schema.net.broker_url import SPOOL, Broker
from sam_pipeline.schema.net.deadline import Deadline


class BrokerAddress(NamedTuple):
    """One place where a broker is reached: an IP address, or the directory of a spool."""

    broker: Broker
    ip: str = ""

    def __str__(self) -> str:
        named = self.ip in ("", self.broker.host)
        return str(self.broker) if named else f"{self.broker} ({self.ip})"

    @property
    def identity(self) -> tuple[str, str, int, str]:
        """Equal for a broker that is reached by two names."""
        return (self.broker.scheme, self.ip or self.broker.host, self.broker.port, self.broker.path)


def addresses_of(
    broker: Broker, deadline: Deadline, via_proxy: bool = False
) -> list[BrokerAddress]:
    """All addresses of a broker; one without an IP where a proxy resolves the name.

    Raises:
        BrokerUnavailable: its name does not resolve, or not in time.
    """
    if broker.kind == SPOOL or via_proxy:
        return [BrokerAddress(broker)]
    try:
        return [BrokerAddress(broker, ip) for ip in ips_of(broker.host, broker.port, deadline)]
    except OSError as error:
        raise BrokerUnavailable(BrokerAddress(broker), str(error)) from error


def ips_of(host: str, port: int, deadline: Deadline) -> list[str]:
    """All addresses of a name, of one family: a host with two is still one.

    Raises:
        OSError: it does not resolve, or not in time: in words.
    """
    import socket  # who writes to a spool never needs it

    try:
        found = _look_up((host, port, 0, socket.SOCK_STREAM, 0), deadline)
    except (OSError, UnicodeError) as error:
        words = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise OSError(f"its name is not resolved: {words}") from error
    # A broker with both families answers on IPv4; one with IPv6 alone has no IPv4 address.
    family = socket.AF_INET if socket.AF_INET in {item[0] for item in found} else socket.AF_INET6
    return list(dict.fromkeys(str(item[4][0]) for item in found if item[0] == family))


def _look_up(where: tuple[str, int, int, int, int], deadline: Deadline) -> Any:
    import socket

    try:
        return socket.getaddrinfo(*where, socket.AI_NUMERICHOST)
    except socket.gaierror:
        return within(deadline, socket.getaddrinfo, *where, socket.AI_ADDRCONFIG)
