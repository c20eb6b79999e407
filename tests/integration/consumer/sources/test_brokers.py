"""`sam-consume run` with real brokers: nothing is lost and nothing is loaded twice."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.services.activemq import ActiveMQServer
from tests.services.broker import StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.fault_proxy import FaultProxy
from tests.support.conservation import consumed, key_of, numbered
from tests.support.consumer.daemon import (
    LOST,
    Subscription,
    row_keys,
    running,
    settled_row_keys,
    site_of,
)
from tests.support.consumer.load import offering
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, fill_spool, subscribe
from tests.support.waiting import eventually


@pytest.fixture
def destination() -> str:
    return f"/topic/grid.probe.{uuid.uuid4().hex}"


@pytest.fixture
def site(tmp_path: Path, postgres_url: str, broker: StompServer, destination: str) -> Site:
    """A site of its own on PostgreSQL, subscribed once."""
    site = site_of(tmp_path, [broker.url], Subscription(destination), database=postgres_url)
    subscribe(broker, site.name, destination)
    return site


def test_stored_messages_are_loaded_once(site: Site, broker: StompServer, destination: str) -> None:
    messages = numbered("m", range(500))
    publish(broker.host, broker.port, destination, [*messages, *messages[:50]])

    first, second = site.drain(), site.drain()

    assert (first.code, first.summary["messages"], first.summary["rows"]) == (0, 550, 500)
    assert (second.code, second.summary["messages"], site.rows()) == (0, 0, 500)


def test_kills_and_stops_lose_nothing(site: Site, broker: StompServer, destination: str) -> None:
    publish(broker.host, broker.port, destination, numbered("m", range(1500)))
    for kill in (1, 2):
        with running(site):  # killed by SIGKILL at the end of the block
            site.wait_for_rows(kill * 200)
    before = site.rows()
    publish(broker.host, broker.port, destination, numbered("n", range(500)))
    with running(site) as daemon:
        site.wait_for_rows(before + 1)  # of what was killed, everything has come again
        stopped = daemon.stop()
    loaded = site.rows()

    drained = site.drain()

    assert (stopped.code, drained.code, site.rows()) == (0, 0, 2000)
    assert drained.summary["messages"] == 2000 - loaded, "SIGTERM acks all that is committed"


def test_two_brokers_and_a_spool_are_consumed_at_once_and_a_third_is_reported(
    tmp_path: Path, activemq: ActiveMQServer, rabbitmq: RabbitMQServer, destination: str
) -> None:
    urls = [activemq.url, rabbitmq.url, f"spool://{tmp_path}/spool", "stomp://127.0.0.1:1"]
    site = site_of(tmp_path, urls, Subscription(destination))
    for number, server in enumerate((activemq, rabbitmq), 1):
        subscribe(server, site.name, destination)
        publish(server.host, server.port, destination, numbered(f"{number}", range(number * 100)))
    fill_spool(tmp_path / "spool", numbered("spool", range(300)))

    drained = site.drain(timeout_s=3)

    counts = {broker["broker"]: broker["messages"] for broker in drained.summary["brokers"]}
    assert counts == dict(zip(urls, [100, 200, 300], strict=False))
    assert (drained.code, site.rows()) == (69, 600)
    assert f"{urls[-1]} (connection refused)" in drained.log


@pytest.mark.parametrize("fault", [{"eats": "ACK"}, {"resets_at": "ACK"}])
def test_messages_redelivered_after_lost_acks_change_nothing(
    site: Site, broker: StompServer, destination: str, fault: dict[str, str]
) -> None:
    messages, later = numbered("first", range(40)), numbered("later", range(1))
    with FaultProxy(broker.port, spoils=1, **fault) as proxy:  # type: ignore[arg-type]
        site.edit(broker.url, proxy.url)
        with running(site) as daemon:
            daemon.wait_until_subscribed(proxy.url)
            publish(broker.host, broker.port, destination, messages)
            site.wait_for_rows(40)
            proxy.cut()
            daemon.wait_until_subscribed(proxy.url, times=2)
            publish(broker.host, broker.port, destination, later)
            site.wait_for_rows(41)
            stopped = daemon.stop()

    consumed([key_of(message.body) for message in (*messages, *later)], row_keys(site))
    assert (stopped.code, stopped.messages) == (0, 81)


def test_after_a_partition_the_backlog_is_loaded(
    tmp_path: Path, broker: StompServer, destination: str
) -> None:
    with FaultProxy(broker.port) as proxy:
        site = site_of(tmp_path, [proxy.url], Subscription(destination), heart_beat_s=1.0)
        with running(site) as daemon:
            daemon.wait_until_subscribed(proxy.url)
            with offering(broker, destination) as load:
                site.wait_for_rows(1)
                proxy.black_hole()
                daemon.wait_for(proxy.url, LOST)
                rows, sent = site.rows(), len(load.accepted)
                eventually(lambda: len(load.accepted) >= sent + 100)
                assert site.rows() == rows
                proxy.heal()
                daemon.wait_until_subscribed(proxy.url, times=2)
            consumed(load.accepted, settled_row_keys(site, load.accepted))
            assert daemon.stop().code == 0

    consumed(load.accepted, row_keys(site))


def test_processes_share_messages_without_overlap_and_take_those_of_a_killed_one(
    tmp_path: Path, postgres_url: str, broker: StompServer
) -> None:
    names = [f"{prefix}{uuid.uuid4().hex}" for prefix in ("/topic/VirtualTopic.", "/queue/")]
    shared = [Subscription(name, shared=True) for name in names]
    site = site_of(tmp_path, [broker.url], *shared, database=postgres_url, prefetch=50)
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
    assert site.scalar("SELECT sum(messages) FROM loaded_batch") == 1200
