"""How a look at a destination is requested: never as a consumer that takes messages."""

from __future__ import annotations

import pytest

from sam_pipeline.consumer.errors import SubscriptionRefused
from sam_pipeline.consumer.sources.stomp.dialects import DIALECTS, BrokerDialect
from sam_pipeline.consumer.sources.stomp.session import Subscription
from sam_pipeline.consumer.sources.stomp.tap_session import tap_headers
from sam_pipeline.schema.messages.foreign import Stamp

ACTIVEMQ, ARTEMIS, RABBITMQ = DIALECTS
DURABLE = {
    "activemq.subscriptionName",
    "durable-subscription-name",
    "durable",
    "auto-delete",
    "x-queue-name",
}


def headers_of(dialect: BrokerDialect, destination: str, **added: str) -> dict[str, str]:
    return tap_headers(dialect, Subscription(destination, Stamp(), headers=added), 10)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.server)
def test_a_topic_is_subscribed_to_without_anything_that_lasts(dialect: BrokerDialect) -> None:
    headers = headers_of(dialect, "/topic/grid.x")

    assert headers["destination"] == "/topic/grid.x"
    assert headers["ack"] == "auto"
    assert not DURABLE & set(headers)


def test_of_a_shared_subscription_the_topic_is_tapped() -> None:
    copy = headers_of(ACTIVEMQ, "/queue/Consumer.site-a.VirtualTopic.x")
    queue = headers_of(ARTEMIS, "/topic/x::site-a.x")

    assert copy["destination"] == "/topic/VirtualTopic.x"
    assert "browser" not in copy
    assert queue["destination"] == "/topic/x"
    assert queue["subscription-type"] == "MULTICAST"


def test_a_queue_is_browsed_or_left_alone() -> None:
    assert headers_of(ACTIVEMQ, "/queue/x")["browser"] == "true"
    for dialect, queue in (
        (ARTEMIS, "/queue/x"),
        (RABBITMQ, "/queue/x"),
        (RABBITMQ, "/amq/queue/x"),
    ):
        with pytest.raises(SubscriptionRefused, match="without taking them"):
            headers_of(dialect, queue)


def test_a_topic_can_not_smuggle_in_a_queue() -> None:
    with pytest.raises(SubscriptionRefused):
        headers_of(ACTIVEMQ, "/topic/x,queue://y")


def test_of_the_configured_headers_only_a_selector_applies() -> None:
    headers = headers_of(ARTEMIS, "/topic/x", selector="site = 'A'", durable="true")

    assert headers["selector"] == "site = 'A'"
    assert "durable" not in headers
