"""From broker URLs to addresses: a name with several addresses is several brokers."""

from __future__ import annotations

from typing import NamedTuple

from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.schema.net.broker_url import SPOOL, Broker
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.resolver import Resolver


class BrokerAddress(NamedTuple):
    """One way to reach a broker: an IP address, or the directory of a spool."""

    broker: Broker
    ip: str = ""

    def __str__(self) -> str:
        named = self.ip in ("", self.broker.host)
        return str(self.broker) if named else f"{self.broker} ({self.ip})"

    @property
    def identity(self) -> tuple[str, str, int, str]:
        """Equal for two names of the same broker."""
        return (self.broker.scheme, self.ip or self.broker.host, self.broker.port, self.broker.path)


def addresses_of(
    broker: Broker, deadline: Deadline, via_proxy: bool = False
) -> list[BrokerAddress]:
    """All addresses of a broker; a single one without an IP if a proxy resolves the name.

    Raises:
        BrokerUnavailable: the name does not resolve, or not in time.
    """
    if broker.kind == SPOOL or via_proxy:
        return [BrokerAddress(broker)]
    try:
        ips = Resolver().ips_of(broker.host, broker.port, deadline)
        return [BrokerAddress(broker, ip) for ip in ips]
    except OSError as error:
        raise BrokerUnavailable(BrokerAddress(broker), str(error)) from error
