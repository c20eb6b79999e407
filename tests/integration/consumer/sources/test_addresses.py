"""A name with several broker addresses, which change while `sam-consume` runs."""

from __future__ import annotations

import uuid
from pathlib import Path

from tests.services.activemq import ActiveMQServer
from tests.services.artemis import ArtemisServer
from tests.services.process import free_ports
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.fault_proxy import FaultProxy
from tests.support.conservation import numbered
from tests.support.consumer.daemon import LOST, SUBSCRIBED, Subscription, running, site_of
from tests.support.consumer.publisher import publish
from tests.support.names import Names

NAME = "brokers.example.org"
FIRST, SECOND, THIRD = "127.0.0.2", "127.0.0.3", "127.0.0.4"


def test_all_brokers_behind_a_name_are_consumed_as_its_addresses_change(
    tmp_path: Path, activemq: ActiveMQServer, artemis: ArtemisServer, rabbitmq: RabbitMQServer
) -> None:
    destination = f"/topic/grid.probe.{uuid.uuid4().hex}"
    names, (port,) = Names(tmp_path / "names"), free_ports(1)
    site = site_of(tmp_path, [f"stomp://{NAME}:{port}"], Subscription(destination))
    names.lead(NAME)
    with (
        FaultProxy(activemq.port, host=FIRST, port=port) as first,
        FaultProxy(rabbitmq.port, host=SECOND, port=port) as second,
        FaultProxy(artemis.port, host=THIRD, port=port) as third,
        running(site, **names.environment()) as daemon,
    ):
        daemon.wait_for(LOST, "name or service not known")
        names.lead(NAME, FIRST, SECOND)
        daemon.wait_for(FIRST, SUBSCRIBED)
        daemon.wait_for(SECOND, SUBSCRIBED)
        names.lead(NAME, SECOND, THIRD)
        daemon.wait_for(THIRD, SUBSCRIBED)
        # The first broker may still have messages, so its connection is kept until it is lost.
        for number, broker in enumerate((activemq, rabbitmq, artemis)):
            publish(broker.host, broker.port, destination, numbered(f"m{number}", range(10)))
        site.wait_for_rows(30)
        first.cut()
        third.cut()
        daemon.wait_for(FIRST, LOST)
        daemon.wait_for(THIRD, SUBSCRIBED, times=2)
        publish(artemis.host, artemis.port, destination, numbered("later", range(10)))
        site.wait_for_rows(40)
        connections = [proxy.connections for proxy in (first, second, third)]
        stopped = daemon.stop()

    assert connections == [1, 1, 2], "a removed address is not connected to again"
    assert (stopped.code, stopped.messages) == (0, 40)
