"""The STOMP dialect of each kind of broker: a table to read, and to add to.

The `server` header of the CONNECTED frame names the kind. Measured on ActiveMQ 5 and 6, Artemis
2.56 and RabbitMQ 3.10. `{name}` stands for the name of the subscription, `{prefetch}` for the
number of messages that may be unacknowledged, `{window}` for the same in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sam_pipeline.schema.net.stomp_session import QUEUES, SessionLost

VIRTUAL_TOPIC = "/topic/VirtualTopic."
"""A topic of ActiveMQ Classic that fills a queue for each name that shares it."""

MESSAGE_BYTES = 1024
"""What a message of one record takes in Artemis's count of unacknowledged bytes."""


@dataclass(frozen=True)
class BrokerDialect:
    """`server` is how the header begins; `durable` and `shared` apply to all but queues.

    `ack_id` is the header of a MESSAGE that its ACK repeats; acks are cumulative everywhere.
    """

    server: str
    always: Mapping[str, str]
    durable: Mapping[str, str]
    shared: Mapping[str, str]
    shared_as: str = "{destination}"
    """The destination for processes that share the messages of a topic."""
    ack_id: str = "ack"
    acks_in_transaction: bool = True
    """Ten times the rate of bare acks on ActiveMQ, and a little quicker on RabbitMQ."""


_QUEUE_OF_RABBITMQ = {"durable": "true", "auto-delete": "false", "x-queue-name": "{name}"}

DIALECTS = (
    BrokerDialect(
        server="ActiveMQ/",
        always={"activemq.prefetchSize": "{prefetch}"},
        durable={"activemq.subscriptionName": "{name}"},  # with the client-id of CONNECT
        shared={},
        shared_as="/queue/Consumer.{short_name}.{topic}",
    ),
    BrokerDialect(
        server="ActiveMQ-Artemis/",
        always={"consumer-window-size": "{window}"},
        durable={"durable-subscription-name": "{name}"},
        shared={},
        shared_as="{destination}::{name}",
        # A publisher's own `ack` header would replace the broker's; this one it can't.
        ack_id="message-id",
        acks_in_transaction=False,  # it acks at once, whatever the transaction
    ),
    BrokerDialect(
        server="RabbitMQ/",
        always={"prefetch-count": "{prefetch}"},
        durable=_QUEUE_OF_RABBITMQ,
        shared=_QUEUE_OF_RABBITMQ,
    ),
)


def dialect_of(server: str) -> BrokerDialect:
    """The dialect of the broker that names itself so in its `server` header.

    Raises:
        SessionLost: a kind that is unknown here.
    """
    for dialect in DIALECTS:
        if server.startswith(dialect.server):
            return dialect
    raise SessionLost(f"a broker of a kind unknown here: {server or 'no server header'}")


def subscribe_headers(
    dialect: BrokerDialect,
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
    wanted = dict(dialect.always)
    if durable and not is_queue:
        wanted |= dialect.shared if shared else dialect.durable
    wanted["destination"] = "{destination}"
    if shared and not is_queue:
        wanted["destination"] = dialect.shared_as
        if "{short_name}" in dialect.shared_as and not destination.startswith(VIRTUAL_TOPIC):
            raise SessionLost(f"shared = true: here only {VIRTUAL_TOPIC}… and queues can be shared")
    topic = destination.removeprefix("/topic/").strip("/")
    values: dict[str, object] = {
        # As in `site-a.grid.probe.metricOutput`: an operator sees it on the broker's own pages.
        # One per destination: two subscriptions of one client may not share a name.
        "name": f"{consumer}.{topic.replace('/', '.')}",
        "short_name": consumer.replace(".", "-"),
        "topic": topic,
        "destination": destination,
        "prefetch": prefetch,
        "window": prefetch * MESSAGE_BYTES,
    }
    return {key: value.format_map(values) for key, value in wanted.items()}
