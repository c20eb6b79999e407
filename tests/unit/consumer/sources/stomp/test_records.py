"""What is remembered of the subscriptions that brokers have confirmed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sam_pipeline.consumer.errors import SubscriptionRefused
from sam_pipeline.consumer.settings.broker_config import BrokerConfig
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.subscription_config import SubscriptionConfig
from sam_pipeline.consumer.sources.stomp.dialects import (
    ACTIVEMQ,
    ARTEMIS,
    RABBITMQ,
    deletable,
    dialect_of,
    stored_in,
)
from sam_pipeline.consumer.sources.stomp.left_behind import left_behind
from sam_pipeline.consumer.sources.stomp.records import BrokerRecords, SubscriptionRecords
from sam_pipeline.schema.net.broker_url import parse_broker

BROKER = "stomp://msg1.example.org:61613"
METRICS, SHARED = "/topic/grid.probe.metricOutput", "/topic/VirtualTopic.x"


def config_of(
    directory: Path, *destinations: str, shared: bool = False, vhost: str = "/"
) -> ConsumerConfig:
    return ConsumerConfig(
        (BROKER,),
        name="site-a",
        broker=(BrokerConfig(BROKER, vhost=vhost),) if vhost != "/" else (),
        subscription=tuple(SubscriptionConfig(name, shared=shared) for name in destinations),
        state_directory=directory,
    )


def made(config: ConsumerConfig, kind: str, *destinations: str, shared: bool = False) -> None:
    records = BrokerRecords(config, parse_broker(BROKER))
    for destination in destinations:
        records.add(dialect_of(f"{kind}/1"), destination, shared, {})


def left(config: ConsumerConfig) -> list[str]:
    return [item.stored_in for item in left_behind(config, SubscriptionRecords(config).all())]


def test_a_line_that_was_cut_short_costs_no_other(tmp_path: Path) -> None:
    config = config_of(tmp_path, METRICS)
    records = SubscriptionRecords(config)
    made(config, RABBITMQ, METRICS)
    with records.path.open("ab") as file:
        file.write(b'{"added": {"consumer": "site-a", "bro')
    made(config, RABBITMQ, SHARED)

    assert [item.destination for item in records.all()] == [METRICS, SHARED]


def test_what_is_deleted_is_forgotten_and_what_is_repeated_is_written_once(tmp_path: Path) -> None:
    config = config_of(tmp_path, METRICS)
    records = SubscriptionRecords(config)
    made(config, RABBITMQ, METRICS, METRICS)
    size = records.path.stat().st_size
    made(config, RABBITMQ, METRICS)
    assert records.path.stat().st_size == size
    [subscription] = records.all()

    records.remove(subscription.key)

    assert records.all() == []


def test_another_virtual_host_leaves_the_subscription_behind(tmp_path: Path) -> None:
    made(config_of(tmp_path, METRICS), RABBITMQ, METRICS)

    assert left(config_of(tmp_path, METRICS)) == []
    assert left(config_of(tmp_path, METRICS, vhost="b")) == ["site-a.grid.probe.metricOutput"]


@pytest.mark.parametrize(
    ("kind", "behind"),
    [
        (RABBITMQ, []),  # the same queue
        (ARTEMIS, ["site-a.site-a.VirtualTopic.x"]),
        (ACTIVEMQ, ["site-a.VirtualTopic.x"]),
    ],
)
def test_sharing_leaves_the_subscription_of_one_process_behind(
    tmp_path: Path, kind: str, behind: list[str]
) -> None:
    made(config_of(tmp_path, SHARED), kind, SHARED)

    assert left(config_of(tmp_path, SHARED, shared=True)) == behind


def test_another_selector_is_refused_and_the_same_is_not(tmp_path: Path) -> None:
    broker, dialect = parse_broker(BROKER), dialect_of(f"{ACTIVEMQ}/6")
    records = BrokerRecords(config_of(tmp_path, METRICS), broker)
    before, after = {"selector": "a = 1"}, {"selector": "a = 2"}
    records.add(dialect, METRICS, False, before)

    records.require_unchanged(dialect, METRICS, False, before)
    for changed in (after, {}):
        with pytest.raises(SubscriptionRefused, match=r"'a = 1'.*sam-consume unsubscribe"):
            records.require_unchanged(dialect, METRICS, False, changed)


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
    name = stored_in(dialect_of(f"{kind}/1"), "site-a", destination, shared)

    assert name == where
    assert deletable(kind, destination, shared) is can_be_deleted
