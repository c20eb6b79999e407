"""`sam-consume run` over faulty connections: nothing is lost, nothing is duplicated."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pytest

from tests.services.activemq import ActiveMQServer
from tests.services.broker import StompServer
from tests.support.brokers.fault_proxy import HEART_BEATS, FaultProxy
from tests.support.conservation import consumed, key_of, numbered
from tests.support.consumer.daemon import (
    LOST,
    Subscription,
    locked,
    row_keys,
    running,
    settled_row_keys,
    site_of,
)
from tests.support.consumer.load import offering
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import eventually

HEART_BEAT_S = 1.0


@pytest.fixture
def destination() -> str:
    return f"/topic/grid.probe.{uuid.uuid4().hex}"


@pytest.mark.parametrize("fault", [{"eats": "ACK"}, {"resets_at": "ACK"}])
def test_messages_redelivered_after_lost_acks_change_nothing(
    tmp_path: Path, broker: StompServer, destination: str, fault: dict[str, str]
) -> None:
    messages, later = numbered("first", range(40)), numbered("later", range(1))
    with FaultProxy(broker.port, spoils=1, **fault) as proxy:  # type: ignore[arg-type]
        site = site_of(tmp_path, [proxy.url], Subscription(destination))
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


def test_a_message_delivered_on_three_connections_is_one_row(
    tmp_path: Path, broker: StompServer, destination: str
) -> None:
    """On a durable topic ActiveMQ does not even mark redelivered messages."""
    (message,), later = numbered("thrice", range(1)), numbered("later", range(1))
    with FaultProxy(broker.port, eats="ACK", spoils=2) as proxy:
        site = site_of(tmp_path, [proxy.url], Subscription(destination))
        with running(site) as daemon:
            daemon.wait_until_subscribed(proxy.url)
            publish(broker.host, broker.port, destination, [message])
            for connection in (1, 2):
                eventually(lambda connection=connection: proxy.frames["ACK"] == connection)
                proxy.cut()
                daemon.wait_until_subscribed(proxy.url, times=connection + 1)
            publish(broker.host, broker.port, destination, later)
            site.wait_for_rows(2)
            stopped = daemon.stop()

    assert row_keys(site) == ["thrice-0", "later-0"]
    assert stopped.messages == 4, "counted as often as it was delivered"


def test_a_broker_without_heart_beats_is_disconnected_and_logged_once(
    tmp_path: Path, broker: StompServer, destination: str
) -> None:
    with FaultProxy(broker.port, eats=HEART_BEATS, spoils=1) as proxy:
        site = site_of(tmp_path, [proxy.url], Subscription(destination), heart_beat_s=HEART_BEAT_S)
        with running(site) as daemon:
            daemon.wait_until_subscribed(proxy.url, times=2)
            publish(broker.host, broker.port, destination, numbered("after", range(10)))
            site.wait_for_rows(10)

            assert len(daemon.lines(LOST)) == 1
            assert proxy.connections == 2


def test_a_late_heart_beat_does_not_end_the_connection(
    tmp_path: Path, activemq: ActiveMQServer, destination: str
) -> None:
    with FaultProxy(activemq.port) as proxy:
        site = site_of(tmp_path, [proxy.url], Subscription(destination), heart_beat_s=2.0)
        with running(site) as daemon:
            daemon.wait_until_subscribed(proxy.url)
            for number in range(2):
                proxy.freeze_answers()
                time.sleep(2.8)  # the next heart-beat is late by almost one interval
                proxy.heal()
                publish(activemq.host, activemq.port, destination, numbered(f"{number}", range(1)))
                site.wait_for_rows(number + 1)

            assert daemon.lines(LOST) == []
            assert proxy.connections == 1


def test_a_frozen_broker_is_disconnected_and_used_again_once_it_responds(
    tmp_path: Path, broker: StompServer, destination: str
) -> None:
    site = site_of(tmp_path, [broker.url], Subscription(destination), heart_beat_s=HEART_BEAT_S)
    with running(site) as daemon:
        daemon.wait_until_subscribed(broker.url)
        publish(broker.host, broker.port, destination, numbered("before", range(50)))
        with broker.frozen():
            daemon.wait_for(LOST, "no sign of life")
        daemon.wait_until_subscribed(broker.url, times=2)
        publish(broker.host, broker.port, destination, numbered("after", range(50)))
        site.wait_for_rows(100)

        assert daemon.stop().code == 0
    consumed([f"{name}-{n}" for name in ("before", "after") for n in range(50)], row_keys(site))


def test_a_slow_database_does_not_end_the_connection(
    tmp_path: Path, postgres_url: str, broker: StompServer, destination: str
) -> None:
    """More messages arrive than fit in memory, and heart-beats continue."""
    messages = numbered("many", range(3000))
    with FaultProxy(broker.port) as proxy:
        site = site_of(
            tmp_path,
            [proxy.url],
            Subscription(destination),
            database=postgres_url,
            heart_beat_s=HEART_BEAT_S,
            prefetch=100,
        )
        with running(site) as daemon:
            daemon.wait_until_subscribed(proxy.url)
            with locked(postgres_url, "metric_result"):
                publish(broker.host, broker.port, destination, messages)
                time.sleep(4 * HEART_BEAT_S)
            site.wait_for_rows(3000)

            assert daemon.lines(LOST) == []
            assert proxy.connections == 1


def test_after_a_network_partition_the_backlog_is_loaded(
    tmp_path: Path, broker: StompServer, destination: str
) -> None:
    with FaultProxy(broker.port) as proxy:
        site = site_of(tmp_path, [proxy.url], Subscription(destination), heart_beat_s=HEART_BEAT_S)
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
