"""Brokers that are killed under load: what they confirmed becomes rows, each once."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pytest

from tests.conservation import consumed
from tests.integration.consume_daemon import SUBSCRIBED, Daemon, Wanted, row_keys, running, site_of
from tests.integration.consume_load import offering
from tests.integration.consume_site import Site
from tests.integration.queue_reader import RealBroker

KILLS = 3
BACK_WITHIN_S = 10.0


@pytest.mark.parametrize("server", ["activemq", "artemis", "rabbitmq"])
def test_a_broker_killed_again_and_again_under_load_loses_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, server: str
) -> None:
    broker: RealBroker = request.getfixturevalue(server)
    destination = f"/topic/grid.probe.{uuid.uuid4().hex}"
    site = site_of(tmp_path, [broker.url], Wanted(destination))
    with running(site) as daemon:
        daemon.wait_until_subscribed(broker.url)
        with offering(broker, destination) as load:
            took_s = [back_after_kill(broker, site, daemon) for _ in range(KILLS)]
        site.wait_for_rows(len(load.accepted))
        stopped = daemon.stop()

    consumed(load.accepted, row_keys(site))
    assert stopped.code == 0
    assert max(took_s) < BACK_WITHIN_S, took_s
    assert load.again >= KILLS, "it was killed while something was under way"


def back_after_kill(broker: RealBroker, site: Site, daemon: Daemon) -> float:
    """Kill it amid the load; so many seconds after it answered again the consumer was back."""
    site.wait_for_rows(site.rows() + 50)
    times = len(daemon.lines(SUBSCRIBED)) + 1
    broker.restart()
    answered = time.monotonic()
    daemon.wait_until_subscribed(broker.url, times=times)
    return time.monotonic() - answered
