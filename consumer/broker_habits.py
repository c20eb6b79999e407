"""What each kind of broker wants in a SUBSCRIBE frame: a table to be read, and added to.

The `server` header of the CONNECTED frame tells the kind. Measured on ActiveMQ 5 and 6 and on
RabbitMQ 3.10. `{name}` stands for the name of the subscription, `{prefetch}` for the number of
messages that may be on their way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

QUEUES = ("/queue/", "/amq/queue/")
"""Destinations that keep messages by themselves: nothing durable to ask for."""


@dataclass(frozen=True)
class BrokerHabits:
    """`server` is how the header begins; `durable` applies to all but queues."""

    server: str
    always: Mapping[str, str]
    durable: Mapping[str, str]


HABITS = (
    BrokerHabits(
        server="ActiveMQ/",
        always={"activemq.prefetchSize": "{prefetch}"},
        durable={"activemq.subscriptionName": "{name}"},  # with the client-id of CONNECT
    ),
    BrokerHabits(
        server="RabbitMQ/",
        always={"prefetch-count": "{prefetch}"},
        durable={"durable": "true", "auto-delete": "false", "x-queue-name": "{name}"},
    ),
)


def habits_of(server: str) -> BrokerHabits | None:
    """The habits of the broker that names itself so; None for a kind unknown here."""
    return next((habits for habits in HABITS if server.startswith(habits.server)), None)


def subscription_name(consumer: str, destination: str) -> str:
    """`site-a.grid.probe.metricOutput`: what an operator sees on the broker's own pages.

    One per destination: two subscriptions of one client may not share a name.
    """
    return f"{consumer}.{destination.removeprefix('/topic/').strip('/').replace('/', '.')}"


def subscribe_headers(
    habits: BrokerHabits, consumer: str, destination: str, prefetch: int
) -> dict[str, str]:
    """The headers this broker needs to keep messages while we are away and to pace itself."""
    wanted = dict(habits.always)
    if not destination.startswith(QUEUES):
        wanted.update(habits.durable)
    name = subscription_name(consumer, destination)
    return {key: value.format(name=name, prefetch=prefetch) for key, value in wanted.items()}
