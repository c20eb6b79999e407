"""Subscriptions to many destinations at once, in the syntax of each broker."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from sam_pipeline.schema.messages.message import Message
from tests.services.broker import StompServer
from tests.support.brokers.choice import on_brokers
from tests.support.conservation import consumed, numbered
from tests.support.consumer.daemon import Subscription, dead_letter_keys, row_keys, running, site_of
from tests.support.consumer.publisher import publish

ONE_LEVEL = "*"
TRAILING_WILDCARDS = {"activemq": ">", "activemq5": ">", "artemis": "#", "rabbitmq": "#"}


pytestmark = on_brokers(*TRAILING_WILDCARDS)


@pytest.fixture
def trailing_wildcard(broker: StompServer, request: pytest.FixtureRequest) -> str:
    return TRAILING_WILDCARDS[request.node.callspec.params["broker"]]


@pytest.fixture
def prefix() -> str:
    return f"/topic/grid.{uuid.uuid4().hex}"


def without_class(prefix: str, numbers: range, **changes: str) -> list[Message]:
    return [
        Message({"content-type": "text/plain"}, message.body)
        for message in numbered(prefix, numbers, **changes)
    ]


def test_a_wildcard_keeps_messages_that_arrive_while_the_consumer_is_stopped(
    tmp_path: Path, broker: StompServer, prefix: str
) -> None:
    site = site_of(tmp_path, [broker.url], Subscription(f"{prefix}.{ONE_LEVEL}"))
    with running(site, log="first.log") as daemon:
        daemon.wait_until_subscribed(broker.url)
        daemon.stop()

    publish(broker.host, broker.port, f"{prefix}.one", without_class("one", range(30)))
    publish(broker.host, broker.port, f"{prefix}.two", without_class("two", range(30)))
    publish(broker.host, broker.port, f"{prefix}.one.deeper", without_class("deeper", range(30)))
    with running(site) as daemon:
        site.wait_for_rows(60)
        stopped = daemon.stop()

    assert (stopped.code, stopped.messages) == (0, 60)
    consumed([f"{name}-{n}" for name in ("one", "two") for n in range(30)], row_keys(site))


def test_a_trailing_wildcard_matches_every_level(
    tmp_path: Path, broker: StompServer, prefix: str, trailing_wildcard: str
) -> None:
    site = site_of(tmp_path, [broker.url], Subscription(f"{prefix}.{trailing_wildcard}"))
    with running(site) as daemon:
        daemon.wait_until_subscribed(broker.url)
        publish(broker.host, broker.port, f"{prefix}.one", without_class("one", range(10)))
        publish(broker.host, broker.port, f"{prefix}.one.two", without_class("two", range(10)))
        site.wait_for_rows(20)
        assert daemon.stop().code == 0

    consumed([f"{name}-{n}" for name in ("one", "two") for n in range(10)], row_keys(site))


def test_a_dead_letter_of_a_wildcard_names_its_own_destination(
    tmp_path: Path, broker: StompServer, prefix: str
) -> None:
    bad = without_class("bad", range(1), metricStatus="MAYBE")
    site = site_of(tmp_path, [broker.url], Subscription(f"{prefix}.{ONE_LEVEL}"))
    with running(site) as daemon:
        daemon.wait_until_subscribed(broker.url)
        publish(broker.host, broker.port, f"{prefix}.one", [*bad, *numbered("good", range(1))])
        site.wait_for_rows(1)
        assert daemon.stop().code == 0

    headers = json.loads(site.scalar("SELECT headers FROM dead_letter"))
    assert headers["destination"] == f"{prefix}.one"
    assert headers["messageClass"] == "metricOutput", "the class comes from the subscription"
    consumed(["bad-0", "good-0"], row_keys(site), dead_letter_keys(site))
