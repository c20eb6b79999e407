"""The STOMP dialects of the brokers, as a table.

The `server` header of the CONNECTED frame identifies the kind of broker. The table was verified
with ActiveMQ 5 and 6, Artemis 2.56 and RabbitMQ 3.10. `{name}` stands for the name of the
subscription, `{prefetch}` for the limit on unacknowledged messages, `{window}` for the same limit
in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sam_pipeline.schema.messages.destination import EXCHANGES, QUEUES, TOPICS, VIRTUAL_TOPIC
from sam_pipeline.schema.net.stomp.session import SessionLost

ACTIVEMQ, ARTEMIS, RABBITMQ = "ActiveMQ", "ActiveMQ-Artemis", "RabbitMQ"
MESSAGE_BYTES = 1024
"""The size of a message of one record, as Artemis counts unacknowledged bytes."""


@dataclass(frozen=True)
class BrokerDialect:
    """`server` is the prefix of the header; `durable` and `shared` do not apply to queues.

    `ack_id` is the header of a MESSAGE that the ACK repeats; acks are cumulative everywhere.
    """

    server: str
    always: Mapping[str, str]
    durable: Mapping[str, str]
    shared: Mapping[str, str]
    shared_as: str = "{destination}"
    """The destination if several processes share the messages of a topic."""
    stored_in: str = "{name}"
    """Where the broker stores the messages of a topic for us, as its console shows it."""
    stored_in_shared: str = "{name}"
    ack_id: str = "ack"
    prefetch: int = 6000
    """The limit on unacknowledged messages, unless one is configured."""
    falls_silent: bool = False
    """A message can stop a subscription until it is renewed."""
    acks_in_transaction: bool = True
    """Ten times faster than plain acks on ActiveMQ, and a little faster on RabbitMQ."""
    user_header: str = "JMSXUserID"
    """The header of a MESSAGE in which the broker names the user who sent it, if so configured."""
    refuses_forged_user: bool = False
    """A SEND with the name of another user is an error; other brokers replace the name."""
    foreign_headers: tuple[str, ...] = ()
    """How headers of SUBSCRIBE begin that only other brokers know; this one would ignore them."""
    length_may_lie: bool = False
    """A publisher can replace the `content-length` of the broker by its own."""
    browses: Mapping[str, str] = field(default_factory=dict)
    """The headers that show the messages of a queue without taking them; empty: it can't."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """The headers that make sure that a subscription of a topic gets copies of its messages."""
    queue_separator: str = ""
    """What stands between a topic and one of its queues, which is shared with other consumers."""
    composite: str = ""
    """What separates several destinations in one."""

    delivery_limit: str = ""
    """What it does by default with a message that it has delivered too often, if anything."""
    limited_by: Mapping[str, str] = field(default_factory=dict)
    """The headers of SUBSCRIBE without which that does not apply."""

    def limit_of(self, headers: Mapping[str, str]) -> str:
        """What it does with a message that it has delivered too often, with these headers."""
        return self.delivery_limit if self.limited_by.items() <= headers.items() else ""

    @property
    def kind(self) -> str:
        """The name of the software."""
        return self.server.rstrip("/")

    @property
    def shares_the_name(self) -> bool:
        """Whether a subscription of one process and a shared one are the same."""
        return self.stored_in == self.stored_in_shared and self.durable == self.shared


_QUEUE_OF_RABBITMQ = {"durable": "true", "auto-delete": "false", "x-queue-name": "{name}"}

DIALECTS = (
    BrokerDialect(
        server=f"{ACTIVEMQ}/",
        always={"activemq.prefetchSize": "{prefetch}"},
        durable={"activemq.subscriptionName": "{name}"},  # with the client-id of CONNECT
        shared={},
        shared_as="/queue/Consumer.{short_name}.{topic}",
        stored_in_shared="Consumer.{short_name}.{topic}",
        # At each commit it compares every message of the batch with every unacknowledged one: 6000
        # of them, in batches of 2000, take half as much processor time again.
        prefetch=2000,
        foreign_headers=("x-",),
        length_may_lie=True,  # as a property of a text message, over OpenWire or HTTP
        browses={"browser": "true"},
        composite=",",
    ),
    BrokerDialect(
        server=f"{ARTEMIS}/",
        always={"consumer-window-size": "{window}"},
        durable={"durable-subscription-name": "{name}"},
        shared={},
        shared_as="{destination}::{name}",
        stored_in="{consumer}.{name}",
        # A publisher can replace the `ack` header of the broker by its own, but not this one.
        ack_id="message-id",
        acks_in_transaction=False,  # it acks at once, even within a transaction
        falls_silent=True,  # after a message with a `priority` of 99
        foreign_headers=("x-", "activemq."),
        # Without the prefixes of docs/consumer-reference.md, the acceptor takes topics for queues.
        copies={"subscription-type": "MULTICAST"},
        queue_separator="::",
        delivery_limit="unless max-delivery-attempts is -1, it gives up a message after 10"
        " deliveries (docs/brokers.md)",
    ),
    BrokerDialect(
        server=f"{RABBITMQ}/",
        always={"prefetch-count": "{prefetch}"},
        durable=_QUEUE_OF_RABBITMQ,
        shared=_QUEUE_OF_RABBITMQ,
        user_header="user-id",  # set by the publisher, and verified by the broker
        refuses_forged_user=True,
        foreign_headers=("selector", "activemq."),
        delivery_limit="from version 4 on, a quorum queue gives up a message after 20 deliveries,"
        " unless it has another x-delivery-limit (docs/brokers.md)",
        limited_by={"x-queue-type": "quorum"},
    ),
)


def dialect_of(server: str) -> BrokerDialect:
    """The dialect for a `server` header; raises SessionLost for an unsupported kind of broker."""
    for dialect in DIALECTS:
        if server.startswith(dialect.server):
            return dialect
    raise SessionLost(f"unsupported kind of broker: {server or 'no server header'}")


def subscribe_headers(
    dialect: BrokerDialect,
    consumer: str,
    destination: str,
    prefetch: int,
    shared: bool = False,
    durable: bool = True,
) -> dict[str, str]:
    """The headers of SUBSCRIBE, without `id` and `ack`.

    They make the broker store messages while we are disconnected (`durable`), limit the unacked
    messages, and give each message to only one process (`shared`).

    Raises:
        SessionLost: the broker can't share that destination.
    """
    is_queue = destination.startswith(QUEUES)
    headers = dict(dialect.always)
    if durable and not is_queue:
        headers |= dialect.shared if shared else dialect.durable
    headers["destination"] = "{destination}"
    if shared and not is_queue:
        headers["destination"] = dialect.shared_as
        topics = TOPICS + VIRTUAL_TOPIC
        if "{short_name}" in dialect.shared_as and not destination.startswith(topics):
            text = f"only {topics}… and queues can be shared on this broker (shared = true)"
            raise SessionLost(text)
    values = _names(consumer, destination)
    values |= {"prefetch": str(prefetch), "window": str(prefetch * MESSAGE_BYTES)}
    return {key: value.format_map(values) for key, value in headers.items()}


def stored_in(dialect: BrokerDialect, consumer: str, destination: str, shared: bool) -> str:
    """The queue or subscription in which the broker stores our messages of a destination."""
    if destination.startswith(QUEUES):
        return destination.partition("/queue/")[2]
    name = dialect.stored_in_shared if shared else dialect.stored_in
    return name.format_map(_names(consumer, destination))


def deletable(server: str, destination: str, shared: bool) -> bool:
    """Whether a client can delete the subscription over STOMP; `server` is a kind of broker.

    A queue also belongs to its publishers; ActiveMQ deletes none over STOMP, and RabbitMQ none that
    is bound by `/exchange/`.
    """
    if server == ACTIVEMQ and shared:
        return False
    not_ours = (*QUEUES, EXCHANGES) if server == RABBITMQ else QUEUES
    return not destination.startswith(not_ours)


def _names(consumer: str, destination: str) -> dict[str, str]:
    topic = destination.removeprefix("/topic/").strip("/")
    return {
        "consumer": consumer,
        # Operators see the name in the broker's console. It contains the destination, as two
        # subscriptions of a client must not share a name.
        "name": f"{consumer}.{topic.replace('/', '.')}",
        "short_name": consumer.replace(".", "-"),
        "topic": topic,
        "destination": destination,
    }
