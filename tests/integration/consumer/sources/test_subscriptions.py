"""What real brokers do with subscriptions: wildcards, refusals, and one that falls silent."""

from __future__ import annotations

import json
import threading
import time
import uuid
from pathlib import Path

import pytest

from sam_pipeline.consumer.core.inbox import BatchRule, Inbox, acknowledge
from sam_pipeline.consumer.sources.stomp import session as stomp_session
from sam_pipeline.consumer.sources.stomp.link import StompSettings
from sam_pipeline.consumer.sources.stomp.session import Subscription as OurSubscription
from sam_pipeline.consumer.sources.stomp.source import StompSource
from sam_pipeline.schema.messages.foreign import Stamp
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker_url import parse_broker
from tests.services.artemis import FORBIDDEN, SILENT, ArtemisServer
from tests.services.broker import StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.choice import on_brokers
from tests.support.builders import metric_message
from tests.support.conservation import consumed, numbered
from tests.support.consumer.daemon import (
    Subscription,
    checked,
    dead_letter_keys,
    row_keys,
    running,
    site_of,
)
from tests.support.consumer.publisher import publish
from tests.support.waiting import eventually

QUIET_S = 1.0
TRAILING_WILDCARDS = {"activemq": ">", "activemq5": ">", "artemis": "#", "rabbitmq": "#"}


@on_brokers(*TRAILING_WILDCARDS)
def test_a_wildcard_keeps_messages_that_arrive_while_the_consumer_is_stopped(
    tmp_path: Path, broker: StompServer, request: pytest.FixtureRequest
) -> None:
    all_levels = TRAILING_WILDCARDS[request.node.callspec.params["broker"]]
    one, many = (f"/topic/grid.{uuid.uuid4().hex}" for _ in range(2))
    names = [f"{one}.a", f"{one}.b", f"{many}.c", f"{many}.c.deeper"]
    wildcards = Subscription(f"{one}.*"), Subscription(f"{many}.{all_levels}")
    site = site_of(tmp_path, [broker.url], *wildcards)
    assert site.drain().code == 0
    for name in (*names, f"{one}.a.deeper"):
        messages = [*numbered(name, range(9)), *numbered(f"bad:{name}", [0], metricStatus="MAYBE")]
        foreign = [Message({"content-type": "text/plain"}, m.body) for m in messages]
        publish(broker.host, broker.port, name, foreign)

    drained = site.drain()

    assert drained.summary["messages"] == 10 * len(names)
    keys = [*(f"{name}-{n}" for name in names for n in range(9)), *(f"bad:{n}-0" for n in names)]
    consumed(keys, row_keys(site), dead_letter_keys(site))
    letters = [json.loads(headers) for headers in site.column("SELECT headers FROM dead_letter")]
    assert {letter["destination"] for letter in letters} == {*names}
    assert {letter["messageClass"] for letter in letters} == {"metricOutput"}


def user_of(broker: RabbitMQServer, directory: Path) -> dict[str, str | Path]:
    """The configuration keys of a new user that may read `forbidden.` and write `silent.`."""
    user, password = f"site-{uuid.uuid4().hex}", directory / "password"
    broker.add_user(
        user, "canary", topics_read="^(grid|forbidden)", topics_written="^(grid|silent)"
    )
    password.write_text("canary")
    password.chmod(0o600)
    return {"user": user, "password_file": password}


@on_brokers("artemis", "rabbitmq")
def test_a_refused_destination_leaves_the_other_alone(tmp_path: Path, broker: StompServer) -> None:
    silent = f"/topic/{SILENT}{uuid.uuid4().hex}"
    allowed = f"/topic/grid.probe.{uuid.uuid4().hex}"
    keys = user_of(broker, tmp_path) if isinstance(broker, RabbitMQServer) else {}
    url = f"stomp://{broker.host}:{broker.port}"
    site = site_of(tmp_path, [url], Subscription(silent), Subscription(allowed), **keys)
    with running(site) as daemon:
        daemon.wait_until_subscribed(url)
        publish(broker.host, broker.port, allowed, numbered("allowed", range(50)))
        site.wait_for_rows(50)
        (line,) = daemon.lines("ERROR", url)
        assert daemon.stop().code == 0

    assert f"{silent}: " in line
    assert "canary" not in line


def test_check_reports_unreadable_destinations(tmp_path: Path, rabbitmq: RabbitMQServer) -> None:
    names = [f"/topic/{prefix}{uuid.uuid4().hex}" for prefix in (SILENT, FORBIDDEN)]
    url = f"stomp://{rabbitmq.host}:{rabbitmq.port}"
    keys = user_of(rabbitmq, tmp_path)
    site = site_of(tmp_path, [url], *map(Subscription, names), **keys)

    code, document = checked(site)

    unreadable, unwritable = document["brokers"]
    assert (code, document["problems"]) == (78, [unreadable["problem"]])
    assert f"{names[0]}: " in unreadable["problem"]
    assert unwritable["proven"].startswith("subscribed; sending a message is not permitted")


@pytest.mark.parametrize("shared", [False, True])
def test_messages_behind_one_that_stops_a_subscription_of_artemis_arrive(
    artemis: ArtemisServer, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """Artemis 2.56 does so silently after a message with an impossible priority."""
    monkeypatch.setattr(stomp_session, "QUIET_S", QUIET_S)
    stopped, busy = (f"/topic/{name}.{uuid.uuid4().hex}" for name in ("stopped", "busy"))
    subscriptions = tuple(OurSubscription(name, Stamp(), 100, shared) for name in (stopped, busy))
    settings = StompSettings(f"consumer-{uuid.uuid4().hex}", subscriptions)
    source = StompSource(parse_broker(artemis.url), settings)
    inbox, stop, ids = Inbox(1000), threading.Event(), set[str]()
    good = [metric_message() for _ in range(4)]

    def send(destination: str, *messages: Message) -> None:
        publish(artemis.host, artemis.port, destination, messages)

    def load() -> None:
        while not stop.is_set():
            batch = inbox.take(BatchRule(100, 0.1), 0.1)
            ids.update(delivery.message.message_id for delivery in batch)
            acknowledge(batch)

    def all_arrived() -> bool:
        send(busy, metric_message())
        time.sleep(QUIET_S / 5)
        return {message.message_id for message in good} <= ids

    reading = threading.Thread(target=source.run, args=(inbox, stop))
    loading = threading.Thread(target=load)
    try:
        reading.start()
        loading.start()
        eventually(lambda: not source.missing())
        send(stopped, good[0])
        eventually(lambda: good[0].message_id in ids)
        send(stopped, metric_message(priority="99"), *good[1:])
        eventually(all_arrived)
    finally:
        stop.set()
        reading.join(20)
        loading.join(20)
