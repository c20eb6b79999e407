"""Two consumers with the same name: the second is refused, or waits until the first one ends.

Consumers on SQLite stand for two machines with different databases.
"""

from __future__ import annotations

import signal
import uuid
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from socket import gethostname

import pytest

from tests.services.activemq import ActiveMQServer
from tests.services.broker import StompServer
from tests.services.postgres import PostgresServer, fresh_database
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.choice import on_brokers
from tests.support.conservation import consumed, key_of, numbered
from tests.support.consumer.daemon import (
    LOST,
    SUBSCRIBED,
    Daemon,
    Subscription,
    row_keys,
    running,
    site_of,
)
from tests.support.consumer.faults import WAITING
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site

HEART_BEAT_S = 1.0


@pytest.fixture
def destination() -> str:
    return f"/topic/grid.probe.{uuid.uuid4().hex}"


def test_a_second_consumer_with_the_same_name_on_one_machine_is_refused(
    tmp_path: Path, broker: StompServer, destination: str
) -> None:
    site = site_of(tmp_path, [broker.url], Subscription(destination))
    with running(site) as first:
        first.wait_until_subscribed(broker.url)
        with running(site, log="second.log") as second:
            code = second.process.wait(30)
        publish(broker.host, broker.port, destination, numbered("kept", range(20)))
        site.wait_for_rows(20)

        assert code == 69
        assert second.lines("another sam-consume", site.name)
        assert first.lines(LOST) == []


def test_a_second_consumer_on_another_machine_waits_until_activemq_frees_the_name(
    tmp_path: Path, activemq: ActiveMQServer, destination: str
) -> None:
    site = site_of(tmp_path, [activemq.url], Subscription(destination))
    with running(site) as first:
        first.wait_until_subscribed(activemq.url)
        with running_elsewhere(site) as second:
            second.wait_for(LOST, "already connected")
            first.stop()
            second.wait_until_subscribed(activemq.url)
            publish(activemq.host, activemq.port, destination, numbered("second", range(20)))
            site.wait_for_rows(20)

            assert second.stop().messages == 20


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


def test_a_consumer_whose_name_was_taken_during_an_outage_of_the_database_stops(
    tmp_path: Path, rabbitmq: RabbitMQServer, destination: str, mortal_postgres: PostgresServer
) -> None:
    database = fresh_database(mortal_postgres)
    site = site_of(tmp_path, [rabbitmq.url], Subscription(destination), database=database)
    with running(site) as first:
        first.wait_until_subscribed(rabbitmq.url)
        mortal_postgres.restart()
        publish(rabbitmq.host, rabbitmq.port, destination, numbered("one", range(1)))
        site.wait_for_rows(1)
        mortal_postgres.kill()
        publish(rabbitmq.host, rabbitmq.port, destination, numbered("two", range(1)))
        first.wait_for(WAITING)
        first.process.send_signal(signal.SIGSTOP)
        mortal_postgres.restart()
        with running_elsewhere(site) as second:
            second.wait_until_subscribed(rabbitmq.url)
            first.process.send_signal(signal.SIGCONT)

            assert first.process.wait(60) == 69
            assert first.lines("another sam-consume", f"@{gethostname()} {second.process.pid}")


@on_brokers("rabbitmq")
def test_consumers_on_two_machines_may_share_a_name_if_the_subscription_is_shared(
    tmp_path: Path, broker: StompServer, destination: str, postgres_url: str
) -> None:
    messages = numbered("shared", range(200))
    subscription = Subscription(destination, shared=True)
    site = site_of(tmp_path, [broker.url], subscription, database=postgres_url)
    with running(site) as first, running_elsewhere(site) as second:
        first.wait_until_subscribed(broker.url)
        second.wait_until_subscribed(broker.url)
        publish(broker.host, broker.port, destination, messages)
        site.wait_for_rows(200)

        assert first.stop().messages + second.stop().messages == 200
    consumed([key_of(message.body) for message in messages], row_keys(site))


def test_the_client_id_of_a_frozen_consumer_is_taken_over_once_its_heart_beats_stop(
    tmp_path: Path, activemq: ActiveMQServer, destination: str
) -> None:
    messages = numbered("over", range(50))
    site = site_of(tmp_path, [activemq.url], Subscription(destination), heart_beat_s=HEART_BEAT_S)
    with running(site) as frozen:
        frozen.wait_until_subscribed(activemq.url)
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

    consumed([key_of(message.body) for message in messages], row_keys(site))


def running_elsewhere(site: Site) -> AbstractContextManager[Daemon]:
    """A daemon as on another machine, where the lock of the first one does not exist."""
    return running(replace(site, state="state-elsewhere"), log="elsewhere.log")
