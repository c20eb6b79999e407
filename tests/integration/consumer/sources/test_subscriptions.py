"""Real brokers and subscriptions: wildcards, refusals, one that falls silent, and names in use.

Consumers on SQLite stand for two machines with different databases.
"""

from __future__ import annotations

import json
import signal
import threading
import time
import uuid
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from socket import gethostname

import pytest

from sam_pipeline.consumer.core.inbox import BatchRule, Inbox, acknowledge
from sam_pipeline.consumer.sources.stomp import session as stomp_session
from sam_pipeline.consumer.sources.stomp.session import StompSettings
from sam_pipeline.consumer.sources.stomp.session import Subscription as OurSubscription
from sam_pipeline.consumer.sources.stomp.source import StompSource
from sam_pipeline.schema.messages.foreign import Stamp
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker import parse_broker
from tests.services.activemq import ActiveMQServer
from tests.services.artemis import ArtemisServer
from tests.services.broker import StompServer
from tests.support.brokers.choice import on_brokers
from tests.support.builders import metric_message
from tests.support.conservation import consumed, key_of, numbered
from tests.support.consumer.daemon import (
    LOST,
    SUBSCRIBED,
    Daemon,
    Subscription,
    dead_letter_keys,
    row_keys,
    running,
    site_of,
)
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site
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
        assert inbox.reconnects == {}  # it is renewed, not lost
    finally:
        stop.set()
        reading.join(20)
        loading.join(20)


def running_elsewhere(site: Site) -> AbstractContextManager[Daemon]:
    """A daemon as on another machine, where the lock of the first one does not exist."""
    return running(replace(site, state="state-elsewhere"), log="elsewhere.log")


def test_a_frozen_consumer_loses_its_name_to_another_machine_and_its_own_machine_refuses_it(
    tmp_path: Path, activemq: ActiveMQServer, destination: str
) -> None:
    messages = numbered("over", range(50))
    site = site_of(tmp_path, [activemq.url], Subscription(destination), heart_beat="1s")
    with running(site) as frozen:
        frozen.wait_until_subscribed(activemq.url)
        refused = site.run("run")
        with running_elsewhere(site) as successor:
            successor.wait_for(LOST, "already connected")
            frozen.process.send_signal(signal.SIGSTOP)
            publish(activemq.host, activemq.port, destination, messages)
            successor.wait_until_subscribed(activemq.url)
            site.wait_for_rows(50)
            frozen.process.send_signal(signal.SIGCONT)
            frozen.wait_for(LOST, "already connected")

            assert len(successor.lines(LOST, "already connected")) == 1
            assert successor.stop().code == 0

    assert (refused.returncode, "another sam-consume" in refused.stderr) == (69, True)
    consumed([key_of(message.body) for message in messages], row_keys(site))


@on_brokers("artemis", "rabbitmq")
def test_a_second_consumer_on_another_machine_is_refused_until_the_first_is_gone(
    tmp_path: Path, broker: StompServer, destination: str, postgres_url: str
) -> None:
    """These brokers cannot distinguish the two, so the database does."""
    messages = numbered("kept", range(200))
    site = site_of(tmp_path, [broker.url], Subscription(destination), database=postgres_url)
    with running(site) as first:
        first.wait_until_subscribed(broker.url)
        with running_elsewhere(site) as second:
            assert second.process.wait(30) == 69
            assert second.lines("another sam-consume", f"@{gethostname()} {first.process.pid}")
            assert not second.lines(broker.url, SUBSCRIBED)
        first.process.send_signal(signal.SIGHUP)
        first.wait_until_subscribed(broker.url, times=2)
        publish(broker.host, broker.port, destination, messages)
        site.wait_for_rows(100)
        first.process.kill()
        first.process.wait()

        with running_elsewhere(site) as second:
            second.wait_until_subscribed(broker.url)
            site.wait_for_rows(200)
            assert second.stop().code == 0
    consumed([key_of(message.body) for message in messages], row_keys(site))


PREFETCH = 50


def test_processes_share_messages_without_overlap_and_take_those_of_a_killed_one(
    tmp_path: Path, postgres_url: str, broker: StompServer
) -> None:
    names = [f"{prefix}{uuid.uuid4().hex}" for prefix in ("/topic/VirtualTopic.", "/queue/")]
    shared = [Subscription(name, shared=True) for name in names]
    site = site_of(tmp_path, [broker.url], *shared, database=postgres_url, prefetch=PREFETCH)
    query = "SELECT consumer FROM loaded_batch ORDER BY batch_id"
    with ExitStack() as stack:
        for number in "12":
            killed = stack.enter_context(running(site, "--instance", number, log=f"log-{number}"))
            killed.wait_until_subscribed(broker.url)
        for name in names:
            publish(broker.host, broker.port, name, numbered(name, range(500)))
        site.wait_for_rows(1000)
        killed.process.kill()
        for name in names:
            publish(broker.host, broker.port, name, numbered(f"later {name}", range(100)))
        site.wait_for_rows(1200)

    assert site.run("run", "--instance=0").returncode == 64
    assert {*site.column(query)} == {f"{site.name}@1", f"{site.name}@2"}
    # Each message goes to one of them; what the killed one had not acked goes to the other, too.
    assert 1200 <= site.scalar("SELECT sum(messages) FROM loaded_batch") <= 1200 + 2 * PREFETCH
    assert len(row_keys(site)) == len(set(row_keys(site))) == 1200
