"""Subscriptions in the dialects of the brokers, what taps send, and records of what was made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.consumer.errors import SubscriptionRefused
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.tables import BrokerConfig, SubscriptionConfig
from sam_pipeline.consumer.sources.stomp.dialects import (
    ACTIVEMQ,
    ARTEMIS,
    DIALECTS,
    RABBITMQ,
    BrokerDialect,
    deletable,
    dialect_of,
    stored_in,
    subscribe_headers,
)
from sam_pipeline.consumer.sources.stomp.records import (
    BrokerRecords,
    SubscriptionRecords,
    left_behind,
)
from sam_pipeline.consumer.sources.stomp.session import Subscription
from sam_pipeline.consumer.sources.tap import tap_headers
from sam_pipeline.schema.messages.foreign import Stamp
from sam_pipeline.schema.net.broker import parse_broker
from sam_pipeline.schema.net.stomp.session import SessionLost

CLASSIC, ARTEMIS_2, RABBIT = DIALECTS
BROKER = "stomp://msg1.example.org:61613"
METRICS, SHARED = "/topic/grid.probe.metricOutput", "/topic/VirtualTopic.x"
DURABLE = {
    *("activemq.subscriptionName", "durable-subscription-name"),
    *("durable", "auto-delete", "x-queue-name"),
}
COPY = "Consumer.site-a.VirtualTopic.a"
RABBIT_QUEUE = {"durable": "true", "auto-delete": "false", "x-queue-name": "site-a.a"}


@pytest.mark.parametrize(
    ("dialect", "destination", "shared", "expected"),
    [
        (RABBIT, "/queue/a", False, {"destination": "/queue/a", "prefetch-count": "10"}),
        (CLASSIC, "/queue/a", True, {"destination": "/queue/a", "activemq.prefetchSize": "10"}),
        (
            *(CLASSIC, "/topic/VirtualTopic.a", True),
            {"destination": f"/queue/{COPY}", "activemq.prefetchSize": "10"},
        ),
        (
            *(ARTEMIS_2, "/topic/a", True),
            {"destination": "/topic/a::site-a.a", "consumer-window-size": "10240"},
        ),
        (
            *(RABBIT, "/topic/a", True),
            {"destination": "/topic/a", **RABBIT_QUEUE, "prefetch-count": "10"},
        ),
    ],
)
def test_a_subscription_is_requested_in_the_dialect_of_each_broker(
    dialect: BrokerDialect, destination: str, shared: bool, expected: dict[str, str]
) -> None:
    assert subscribe_headers(dialect, "site-a", destination, 10, shared=shared) == expected


def test_activemq_shares_only_virtual_topics_and_queues() -> None:
    with pytest.raises(SessionLost, match="VirtualTopic"):
        subscribe_headers(CLASSIC, "site-a", "/topic/grid.results", 10, shared=True)


def tapped(dialect: BrokerDialect, destination: str, **added: str) -> dict[str, str]:
    return tap_headers(dialect, Subscription(destination, Stamp(), headers=added), 10)


@pytest.mark.parametrize(
    ("dialect", "destination", "expected"),
    [
        *((dialect, "/topic/x", {"destination": "/topic/x"}) for dialect in DIALECTS),
        (CLASSIC, f"/queue/{COPY}", {"destination": "/topic/VirtualTopic.a"}),
        (
            *(ARTEMIS_2, "/topic/x::site-a.x"),
            {"destination": "/topic/x", "subscription-type": "MULTICAST"},
        ),
        (CLASSIC, "/queue/x", {"destination": "/queue/x", "browser": "true"}),
    ],
)
def test_a_tap_leaves_no_trace(
    dialect: BrokerDialect, destination: str, expected: dict[str, str]
) -> None:
    headers = tapped(dialect, destination, selector="site = 'A'", durable="true")

    assert expected.items() <= headers.items()
    assert ("browser" in headers) == ("browser" in expected)
    assert (headers["ack"], headers["selector"]) == ("auto", "site = 'A'")
    assert not DURABLE & set(headers)


@pytest.mark.parametrize(
    ("dialect", "destination"),
    [(ARTEMIS_2, "/queue/x"), (RABBIT, "/amq/queue/x"), (CLASSIC, "/topic/x,queue://y")],
)
def test_a_tap_refuses_what_it_would_take(dialect: BrokerDialect, destination: str) -> None:
    with pytest.raises(SubscriptionRefused):
        tapped(dialect, destination)


def config_of(directory: Path, destination: str, shared: bool = False, vhost: str = "/") -> Any:
    return ConsumerConfig(
        broker_urls=(BROKER,),
        name="site-a",
        broker=(BrokerConfig(url=BROKER, vhost=vhost),) if vhost != "/" else (),
        subscription=(SubscriptionConfig(destination=destination, shared=shared),),
        state_directory=directory,
    )


def made(config: ConsumerConfig, kind: str, *destinations: str) -> SubscriptionRecords:
    records = BrokerRecords(config, parse_broker(BROKER))
    for destination in destinations:
        records.add(records.made(dialect_of(f"{kind}/1"), destination, False, {}))
    return SubscriptionRecords(config)


def test_what_is_deleted_is_forgotten_and_what_is_repeated_is_written_once(tmp_path: Path) -> None:
    config = config_of(tmp_path, METRICS)
    sizes = [made(config, RABBITMQ, METRICS).path.stat().st_size for _ in range(2)]
    records = SubscriptionRecords(config)
    with records.path.open("ab") as file:
        file.write(b'{"added": {"consumer": "site-a", "bro')  # a line that was cut short
    made(config, RABBITMQ, SHARED)
    before = [item.destination for item in records.all()]

    records.remove(records.all()[0].key)

    assert (sizes[0], before) == (sizes[1], [METRICS, SHARED])
    assert [item.destination for item in records.all()] == [SHARED]


@pytest.mark.parametrize(
    ("kind", "destination", "changes", "behind"),
    [
        (RABBITMQ, METRICS, {}, []),
        (RABBITMQ, METRICS, {"vhost": "b"}, ["site-a.grid.probe.metricOutput"]),
        (RABBITMQ, SHARED, {"shared": True}, []),  # the same queue
        (ARTEMIS, SHARED, {"shared": True}, ["site-a.site-a.VirtualTopic.x"]),
        (ACTIVEMQ, SHARED, {"shared": True}, ["site-a.VirtualTopic.x"]),
    ],
)
def test_another_virtual_host_or_sharing_leaves_the_subscription_behind(
    tmp_path: Path, kind: str, destination: str, changes: dict[str, Any], behind: list[str]
) -> None:
    made(config_of(tmp_path, destination), kind, destination)

    config = config_of(tmp_path, destination, **changes)
    records = SubscriptionRecords(config).all()
    assert [item.stored_in for item in left_behind(config, records)] == behind


def test_another_selector_is_refused_and_the_same_is_not(tmp_path: Path) -> None:
    records = BrokerRecords(config_of(tmp_path, METRICS), parse_broker(BROKER))
    before = {"selector": "a = 1"}
    records.add(records.made(CLASSIC, METRICS, False, before))

    records.require_unchanged(records.made(CLASSIC, METRICS, False, before))
    for changed in ({"selector": "a = 2"}, {}):
        with pytest.raises(SubscriptionRefused, match=r"'a = 1'.*sam-consume subscription delete"):
            records.require_unchanged(records.made(CLASSIC, METRICS, False, changed))


@pytest.mark.parametrize(
    ("kind", "destination", "shared", "where", "can_be_deleted"),
    [
        (ACTIVEMQ, SHARED, True, "Consumer.site-a.VirtualTopic.x", False),
        (ARTEMIS, SHARED, True, "site-a.VirtualTopic.x", True),
        (RABBITMQ, METRICS, False, "site-a.grid.probe.metricOutput", True),
        (RABBITMQ, "/exchange/amq.topic/x", False, "site-a.exchange.amq.topic.x", False),
        (ARTEMIS, "/queue/jobs", False, "jobs", False),
        (RABBITMQ, "/amq/queue/jobs", False, "jobs", False),
    ],
)
def test_where_a_broker_stores_messages_and_whether_we_can_delete_it(
    kind: str, destination: str, shared: bool, where: str, can_be_deleted: bool
) -> None:
    assert stored_in(dialect_of(f"{kind}/1"), "site-a", destination, shared) == where
    assert deletable(kind, destination, shared) is can_be_deleted
