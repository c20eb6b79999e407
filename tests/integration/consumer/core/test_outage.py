"""A database that is away for long, while everything else is interrupted again and again.

Each broker limits how often it delivers a message as it does by default: Artemis deletes it after
ten deliveries.
"""

from __future__ import annotations

import signal
from pathlib import Path

from sqlalchemy import make_url

from sam_pipeline.consumer.core.state import NOT_STORING
from tests.services.broker import StompServer
from tests.services.process import free_ports
from tests.support.brokers.fault_proxy import FaultProxy
from tests.support.conservation import consumed, key_of, numbered
from tests.support.consumer.daemon import Subscription, row_keys, running, site_of
from tests.support.consumer.faults import SHORT_WAITS, WAITING, another_writer
from tests.support.consumer.publisher import publish
from tests.support.waiting import eventually

TIMES = 12
UNAVAILABLE = 69


def test_an_outage_of_the_database_costs_a_message_one_delivery_whatever_else_happens(
    tmp_path: Path, broker: StompServer, destination: str
) -> None:
    messages = numbered("outage", range(20))
    with FaultProxy(broker.port) as proxy:
        site = site_of(tmp_path, [proxy.url], Subscription(destination))
        site.edit("sam.db", f"sam.db?{SHORT_WAITS['sqlite']}")
        site.drain()  # makes the subscription
        publish(broker.host, broker.port, destination, messages)
        with another_writer(site):
            with running(site) as daemon:
                daemon.wait_for(WAITING)
                for _ in range(TIMES):
                    proxy.cut()
                    eventually(lambda: NOT_STORING in str(site.status()["brokers"]))
                assert daemon.stop().code == 0
            for _ in range(TIMES):
                with running(site) as daemon:
                    daemon.wait_for(WAITING)
                    assert daemon.stop().code == 0
            assert [site.drain(timeout_s=0.2).code for _ in range(TIMES)] == [UNAVAILABLE] * TIMES
            connections = proxy.connections
        assert site.drain().code == 0

    consumed([key_of(message.body) for message in messages], row_keys(site))
    assert connections == 2  # of the first drain, and of the daemon before the first cut


def test_a_subscription_that_was_never_made_is_made_while_the_database_is_away(
    tmp_path: Path, activemq: StompServer, destination: str, postgres_url: str
) -> None:
    site = site_of(tmp_path, [activemq.url], Subscription(destination), database=postgres_url)
    place, [nowhere] = f"{make_url(postgres_url).port}/", free_ports(1)
    site.edit(place, f"{nowhere}/")
    with running(site) as daemon:
        daemon.wait_until_subscribed(activemq.url)
        publish(activemq.host, activemq.port, destination, numbered("meanwhile", range(3)))
        site.edit(f"{nowhere}/", place)
        daemon.process.send_signal(signal.SIGHUP)
        site.wait_for_rows(3)
