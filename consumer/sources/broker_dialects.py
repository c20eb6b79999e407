"""What each kind of broker wants in its frames: a table to be read, and added to.

The `server` header of the CONNECTED frame tells the kind. Measured on ActiveMQ 5 and 6, Artemis
2.56 and RabbitMQ 3.10. `{name}` stands for the name of the subscription, `{prefetch}` for the
number of messages that may be on their way, `{window}` for as much in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sam_pipeline.consumer.errors import SessionLost

QUEUES = ("/queue/", "/amq/queue/")
"""Destinations that keep messages by themselves and share them out: nothing to ask for."""

VIRTUAL_TOPIC = "/topic/VirtualTopic."
"""A topic of ActiveMQ Classic that fills a queue for each name that shares it."""

MESSAGE_BYTES = 1024
"""What a message of one record takes in Artemis's count of bytes on their way."""


@dataclass(frozen=True)
class BrokerHabits:
    """`server` is how the header begins; `durable` and `shared` apply to all but queues.

    `ack_id` is the header of a MESSAGE that its ACK repeats; acks are cumulative everywhere.
    """

    server: str
    always: Mapping[str, str]
    durable: Mapping[str, str]
    shared: Mapping[str, str]
    shared_as: str = "{destination}"
    """Where those subscribe who share the messages of a topic among them."""
    ack_id: str = "ack"
    acks_in_transaction: bool = True
    """At ten times the rate of bare ones on ActiveMQ, and a little quicker on RabbitMQ."""


_QUEUE_OF_RABBITMQ = {"durable": "true", "auto-delete": "false", "x-queue-name": "{name}"}

HABITS = (
    BrokerHabits(
        server="ActiveMQ/",
        always={"activemq.prefetchSize": "{prefetch}"},
        durable={"activemq.subscriptionName": "{name}"},  # with the client-id of CONNECT
        shared={},
        shared_as="/queue/Consumer.{short_name}.{topic}",
    ),
    BrokerHabits(
        server="ActiveMQ-Artemis/",
        always={"consumer-window-size": "{window}"},
        durable={"durable-subscription-name": "{name}"},
        shared={},
        shared_as="{destination}::{name}",
        # A publisher's own `ack` header would replace the broker's; this one it can't.
        ack_id="message-id",
        acks_in_transaction=False,  # it takes no notice of them
    ),
    BrokerHabits(
        server="RabbitMQ/",
        always={"prefetch-count": "{prefetch}"},
        durable=_QUEUE_OF_RABBITMQ,
        shared=_QUEUE_OF_RABBITMQ,
    ),
)


def habits_of(server: str) -> BrokerHabits | None:
    """The habits of the broker that names itself so; None for a kind unknown here."""
    return next((habits for habits in HABITS if server.startswith(habits.server)), None)


def subscription_name(consumer: str, destination: str) -> str:
    """`site-a.grid.probe.metricOutput`: what an operator sees on the broker's own pages.

    One per destination: two subscriptions of one client may not share a name.
    """
    return f"{consumer}.{_topic(destination).replace('/', '.')}"


def subscribe_headers(
    habits: BrokerHabits,
    consumer: str,
    destination: str,
    prefetch: int,
    shared: bool = False,
    durable: bool = True,
) -> dict[str, str]:
    """The destination, and the headers this broker needs to keep messages while we are away, to
    pace itself and, if `shared`, to give each message to one of us.

    Raises:
        SessionLost: the broker can't share that destination.
    """
    is_queue = destination.startswith(QUEUES)
    wanted = dict(habits.always)
    if durable and not is_queue:
        wanted |= habits.shared if shared else habits.durable
    wanted["destination"] = "{destination}"
    if shared and not is_queue:
        wanted["destination"] = habits.shared_as
        if "{short_name}" in habits.shared_as and not destination.startswith(VIRTUAL_TOPIC):
            raise SessionLost(f"shared = true: here only {VIRTUAL_TOPIC}… and queues can be shared")
    values: dict[str, object] = {
        "name": subscription_name(consumer, destination),
        "short_name": consumer.replace(".", "-"),
        "topic": _topic(destination),
        "destination": destination,
        "prefetch": prefetch,
        "window": prefetch * MESSAGE_BYTES,
    }
    return {key: value.format_map(values) for key, value in wanted.items()}


def _topic(destination: str) -> str:
    return destination.removeprefix("/topic/").strip("/")
