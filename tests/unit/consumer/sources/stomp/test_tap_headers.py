"""How a look at a destination is requested: never as a consumer that takes messages."""

from __future__ import annotations

import pytest

from sam_pipeline.consumer.errors import SubscriptionRefused
from sam_pipeline.consumer.sources.stomp.dialects import DIALECTS, BrokerDialect
from sam_pipeline.consumer.sources.stomp.tap_session import tap_headers

ACTIVEMQ, ARTEMIS, RABBITMQ = DIALECTS
DURABLE = {
    "activemq.subscriptionName",
    "durable-subscription-name",
    "durable",
    "auto-delete",
    "x-queue-name",
}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.server)
def test_a_topic_is_subscribed_to_without_anything_that_lasts(dialect: BrokerDialect) -> None:
    headers = tap_headers(dialect, "/topic/grid.x", 10)

    assert headers["destination"] == "/topic/grid.x"
    assert headers["ack"] == "auto"
    assert not DURABLE & set(headers)


def test_of_a_shared_subscription_the_topic_is_tapped() -> None:
    copy = tap_headers(ACTIVEMQ, "/queue/Consumer.site-a.VirtualTopic.x", 10)
    queue = tap_headers(ARTEMIS, "/topic/x::site-a.x", 10)

    assert copy["destination"] == "/topic/VirtualTopic.x"
    assert "browser" not in copy
    assert queue["destination"] == "/topic/x"
    assert queue["subscription-type"] == "MULTICAST"


def test_a_queue_is_browsed_or_left_alone() -> None:
    assert tap_headers(ACTIVEMQ, "/queue/x", 10)["browser"] == "true"
    for dialect, queue in (
        (ARTEMIS, "/queue/x"),
        (RABBITMQ, "/queue/x"),
        (RABBITMQ, "/amq/queue/x"),
    ):
        with pytest.raises(SubscriptionRefused, match="without taking them"):
            tap_headers(dialect, queue, 10)


def test_a_topic_can_not_smuggle_in_a_queue() -> None:
    with pytest.raises(SubscriptionRefused):
        tap_headers(ACTIVEMQ, "/topic/x,queue://y", 10)
