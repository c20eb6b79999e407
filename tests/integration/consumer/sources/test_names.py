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
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site


@pytest.fixture
def destination() -> str:
    return f"/topic/grid.probe.{uuid.uuid4().hex}"


def running_elsewhere(site: Site) -> AbstractContextManager[Daemon]:
    """A daemon as on another machine, where the lock of the first one does not exist."""
    return running(replace(site, state="state-elsewhere"), log="elsewhere.log")


def test_a_frozen_consumer_loses_its_name_to_another_machine_and_its_own_machine_refuses_it(
    tmp_path: Path, activemq: ActiveMQServer, destination: str
) -> None:
    messages = numbered("over", range(50))
    site = site_of(tmp_path, [activemq.url], Subscription(destination), heart_beat_s=1.0)
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
