"""Longer rounds of kills than in tests/acceptance/consumer, which also hit the brokers."""

from __future__ import annotations

import uuid
from pathlib import Path

from tests.kills.faults import FREEZE_BROKER, KILL_ALL, KILL_IN_OUTAGE, RELOAD, Fault
from tests.kills.soak import soak
from tests.services import needed
from tests.services.activemq import running_activemq
from tests.services.artemis import running_artemis
from tests.services.postgres import running_postgres
from tests.services.rabbitmq import running_rabbitmq
from tests.support.conservation import consumed
from tests.support.consumer.daemon import Subscription, row_keys, running, site_of
from tests.support.consumer.load import offering

SEED = 6
FAULTS = [
    Fault(KILL_IN_OUTAGE, 0.1),
    Fault(FREEZE_BROKER, 0.3, freeze_s=2.0),
    Fault(RELOAD, 0.0),
    Fault(KILL_ALL, 0.2),
]


def test_kills_of_consumer_servlet_brokers_and_database_lose_and_duplicate_nothing(
    tmp_path: Path,
) -> None:
    """A sample of `make soak`, under a load of `sam-publish` and HTTP clients."""
    with (
        needed(running_artemis()) as artemis,
        needed(running_rabbitmq()) as rabbitmq,
        needed(running_postgres()) as postgres,
    ):
        figures = soak(tmp_path, [artemis, rabbitmq], postgres, FAULTS, SEED)

    print(figures)
    assert figures.problems == []
    assert figures.rows > 10 * figures.dead_letters > 0


def test_a_killed_bridge_and_killed_brokers_lose_nothing(tmp_path: Path) -> None:
    queue = Subscription(f"/queue/{uuid.uuid4().hex}")
    places = tmp_path / "bridge", tmp_path / "loader"
    for place in places:
        place.mkdir()
    with needed(running_activemq()) as source, needed(running_artemis()) as target:
        bridge = site_of(places[0], [source.url], queue)
        loader = site_of(places[1], [target.url], queue)
        with (
            offering(source, queue.destination, pause_s=0.02) as load,
            running(bridge, "--to", target.url) as daemon,
        ):
            daemon.wait_until_subscribed(source.url)
            load.wait_for_more()
            target.kill()
            load.wait_for_more()
            target.restart()
            load.wait_for_more()
            source.restart()
            load.wait_for_more()
            daemon.process.kill()
        moved = bridge.run("run", "--drain", "--to", target.url)
        loaded = loader.drain()

    assert (moved.returncode, loaded.code) == (0, 0), moved.stderr
    consumed(load.accepted, row_keys(loader))
