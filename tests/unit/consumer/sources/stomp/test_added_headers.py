"""The headers that the configuration adds to SUBSCRIBE, and the virtual host of CONNECT."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sam_pipeline.consumer.core.backoff import growing_delays
from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.sources.stomp.link import StompLink, StompSettings
from sam_pipeline.consumer.sources.stomp.session import Subscription
from sam_pipeline.schema.messages.foreign import Stamp
from sam_pipeline.schema.net.broker_url import parse_broker
from tests.support.brokers.fake_broker import FakeBroker, wait_for

RABBITMQ, ACTIVEMQ, ARTEMIS = "RabbitMQ/3.10", "ActiveMQ/6.0", "ActiveMQ-Artemis/2.56"
METRICS = "/topic/grid.probe.metricOutput"


@contextmanager
def linked(broker: FakeBroker, headers: dict[str, str], vhost: str = "/") -> Iterator[StompLink]:
    subscription = Subscription(METRICS, Stamp(), headers=headers)
    settings = StompSettings("site-a", (subscription,), vhost=vhost)
    url = parse_broker(broker.url)
    link = StompLink(url, (url.host, url.port), settings, growing_delays, lambda: True)
    stop = threading.Event()
    thread = threading.Thread(target=link.run, args=(Inbox(10), stop))
    thread.start()
    try:
        yield link
    finally:
        stop.set()
        thread.join(10)


def test_subscribe_has_the_added_headers_and_connect_the_virtual_host() -> None:
    with (
        FakeBroker(server=RABBITMQ) as broker,
        linked(broker, {"x-queue-type": "quorum"}, "monitoring") as link,
    ):
        wait_for(lambda: not link.problem)

    assert broker.logins[0].headers["host"] == "monitoring"
    headers = broker.subscriptions[0].headers
    assert headers["x-queue-type"] == "quorum"
    assert headers["x-queue-name"] == "site-a.grid.probe.metricOutput"
    assert headers["ack"] == "client"


@pytest.mark.parametrize(
    ("server", "header"),
    [(RABBITMQ, "selector"), (ACTIVEMQ, "x-queue-type"), (ARTEMIS, "x-max-length")],
)
def test_a_header_that_the_broker_would_ignore_is_refused(server: str, header: str) -> None:
    with FakeBroker(server=server) as broker, linked(broker, {header: "x"}) as link:
        wait_for(lambda: f"does not know the header {header}" in link.problem)

    assert broker.subscriptions == []


def test_headers_that_a_queue_was_not_made_with_are_refused_with_what_to_do() -> None:
    refusal = "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'site-a.x'"
    with (
        FakeBroker(server=RABBITMQ, forbids_subscribing=refusal) as broker,
        linked(broker, {"x-queue-type": "quorum"}) as link,
    ):
        wait_for(lambda: METRICS in link.problem)
        problem = link.problem

    assert "inequivalent arg" in problem
    assert "sam-consume unsubscribe" in problem
