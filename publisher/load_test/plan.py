"""What a load test measures, cell by cell, and the bounds within which it ends."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address
from itertools import product
from typing import NamedTuple, Optional

from sam_pipeline.publisher.brokers.connection import usable
from sam_pipeline.publisher.errors import BrokerUnavailable, PublishUsage
from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.schema.net.broker import STOMP, Target
from sam_pipeline.schema.net.channel import Resolver
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.program.wording import duration, grouped

TOPIC, QUEUE = "topic", "queue"
KINDS = (TOPIC, QUEUE)

# The test matrix that the authors of the field's messaging service published.
PRODUCERS = (1, 2, 3, 5, 10, 40)
CONSUMERS = (1, 2, 3, 5, 10, 80)
SIZES = (0, 100, 1000, 10_000)

MATRIX, COLLECTOR, FAN_OUT, FLOW_CONTROL = "matrix", "collector", "fan-out", "flow-control"
WARM_UP = "warm-up"

SET_UP_S = 30.0
"""How long the consumers may take to connect and subscribe, and then the producers to connect."""
CONFIRM_S = 15.0
"""How long the last receipts may take."""
DRAIN_S = 30.0
"""How long messages may still arrive after that."""
EMPTY_S = 20.0
"""How long emptying a queue may take."""
LEAVE_S = 20.0
"""How long deleting the subscriptions may take."""

SLOW_PER_S = 50.0
"""Messages that the slow consumer takes per second."""


class LoadCell(NamedTuple):
    """One measurement; it ends after `messages` messages or `seconds`, whichever comes first.

    `rate`: messages/s of all producers together; None means as fast as the broker confirms them.
    `has_slow_consumer`: the first consumer is slow in the middle third of the time.
    """

    scenario: str
    kind: str
    persistent: bool
    producers: int
    consumers: int
    size_bytes: int
    messages: int
    seconds: float
    rate: Optional[float] = None
    has_slow_consumer: bool = False

    @property
    def copies(self) -> int:
        """How many consumers get each message."""
        return self.consumers if self.kind == TOPIC else 1

    @property
    def limit_s(self) -> float:
        """How long the cell takes at most, whatever the broker does."""
        return 2 * SET_UP_S + self.seconds + CONFIRM_S + DRAIN_S + EMPTY_S + LEAVE_S

    @property
    def is_durable(self) -> bool:
        """Whether the broker stores the messages for each consumer of a topic.

        Without a durable subscription brokers store no message of a topic, persistent or not.
        """
        return self.persistent and self.kind == TOPIC

    def share(self, producer: int) -> int:
        """How many of the messages this producer sends; the first is number 0."""
        return len(range(producer, self.messages, self.producers))

    def slow_between(self) -> tuple[float, float]:
        """When the slow consumer is slow, in seconds after the start."""
        return self.seconds / 3, self.seconds * 2 / 3

    def __str__(self) -> str:
        stored = "persistent" if self.persistent else "not persistent"
        who = f"{self.producers} to {self.consumers}"
        return f"{self.scenario}: {who}, {size_text(self.size_bytes)}, {stored}, {self.kind}"


class LoadSelection(NamedTuple):
    """What the options select, by their names; nothing selected means the default."""

    scenarios: Optional[Sequence[str]] = None
    producers: Sequence[int] = PRODUCERS
    consumers: Sequence[int] = CONSUMERS
    sizes: Sequence[int] = SIZES
    kinds: Sequence[str] = ()
    persistence: Sequence[bool] = ()
    messages: Optional[int] = None
    seconds: Optional[float] = None
    rate: Optional[float] = None


SCENARIOS = {
    COLLECTOR: LoadCell(COLLECTOR, TOPIC, True, 300, 1, 500, 60_000, 30.0, 2000.0),
    FAN_OUT: LoadCell(FAN_OUT, TOPIC, True, 10, 100, 200, 20_000, 30.0),
    FLOW_CONTROL: LoadCell(FLOW_CONTROL, TOPIC, True, 5, 5, 1000, 60_000, 30.0, 2000.0, True),
}
"""The scenarios of the field besides the matrix."""
MATRIX_MESSAGES, MATRIX_SECONDS = 10_000, 5.0
WARM_UP_MESSAGES, WARM_UP_SECONDS = 2000, 5.0


def plan(selection: LoadSelection) -> list[LoadCell]:
    """All cells in the order in which they are measured; the first one warms the broker up."""
    matrix = [
        LoadCell(MATRIX, TOPIC, True, *numbers, size, MATRIX_MESSAGES, MATRIX_SECONDS)
        for size in selection.sizes
        for numbers in product(selection.producers, selection.consumers)
    ]
    cells = [
        cell._replace(
            kind=kind,
            persistent=persistent,
            messages=selection.messages or cell.messages,
            seconds=selection.seconds or cell.seconds,
            rate=selection.rate or cell.rate,
        )
        for kind in dict.fromkeys(selection.kinds or [TOPIC])
        for persistent in dict.fromkeys(selection.persistence or [True])
        for name in selection.scenarios or [MATRIX]
        for cell in (matrix if name == MATRIX else [SCENARIOS[name]])
    ]
    first = cells[0]
    messages = min(WARM_UP_MESSAGES, first.messages)
    seconds = min(WARM_UP_SECONDS, first.seconds)
    warm_up = LoadCell(WARM_UP, first.kind, first.persistent, 1, 1, 100, messages, seconds)
    return [warm_up, *cells]


def bounds_text(cells: Sequence[LoadCell]) -> str:
    """How much the cells send, and how long they take, at most."""
    sent = sum(cell.messages for cell in cells)
    received = sum(cell.messages * cell.copies for cell in cells)
    size = sum(cell.messages * cell.copies * cell.size_bytes for cell in cells)
    sending = duration(round(sum(cell.seconds for cell in cells)))
    limit = duration(round(sum(cell.limit_s for cell in cells)))
    return (
        f"{grouped(len(cells))} cells, the first one to warm up: at most {grouped(sent)} messages"
        f" sent, {grouped(received)} received ({grouped(round(size / 1e6))} MB of payload),"
        f" {sending} of sending, {limit} with all waits"
    )


def size_text(size_bytes: int) -> str:
    """A payload as the field writes it: 0 B, 100 B, 1 kB, 10 kB."""
    return f"{size_bytes / 1000:g} kB" if size_bytes >= 1000 else f"{size_bytes} B"


OPTION = "--yes-this-broker"


def target_of(config: PublisherConfig, confirmed: Optional[str], deadline: Deadline) -> Target:
    """The address to test, which all connections use: the name is not looked up again.

    Args:
        confirmed: the host that the operator named, for a broker beyond loopback.

    Raises:
        PublishUsage: there is not exactly one STOMP broker, or it may not be tested.
        BrokerUnavailable: its name does not resolve, or not in time.
    """
    if not config.targets:
        raise PublishUsage("no broker to test: use --broker stomp://HOST:PORT")
    if len(config.targets) > 1:
        listed = ", ".join(map(str, config.targets))
        raise PublishUsage(f"a load test has one broker: choose one of {listed} with --broker")
    (target,) = config.targets
    broker = target.broker
    if broker.kind != STOMP:
        raise PublishUsage(
            f"{target}: a load test also consumes, which needs STOMP: use the stomp:// or"
            " stomp+ssl:// port of the broker"
        )
    if usable(target, target.find_proxy) is not None:
        raise PublishUsage(
            f"{broker}: a load test does not go through a proxy: add {broker.host} to no_proxy"
        )
    if confirmed is not None and confirmed.lower() not in (broker.host.lower(), broker.netloc):
        raise PublishUsage(f"{OPTION} names {confirmed}, but the broker is {broker.netloc}")
    try:
        addresses = sorted(
            Resolver().ips_of(broker.host, broker.port, deadline), key=lambda ip: ":" in ip
        )
    except OSError as error:
        raise BrokerUnavailable(broker, str(error)) from error
    outside = [ip for ip in addresses if not leads_to_loopback(ip)]
    if outside and confirmed is None:
        where = ", ".join(outside) if outside != [broker.host] else "its address"
        verb = "are" if len(outside) > 1 else "is"
        raise PublishUsage(
            f"{broker}: {where} {verb} not on loopback, so nothing was sent: a load test disturbs"
            f" all users of a broker; to test it all the same, add {OPTION} {broker.host}"
        )
    return target._replace(ip=addresses[0])


def leads_to_loopback(ip: str) -> bool:
    """Whether an address is this machine's alone."""
    address = ip_address(ip)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
