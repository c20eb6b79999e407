"""A bridge, and the brokers at its ends, killed under load: each confirmed message is a row."""

from __future__ import annotations

import uuid
from pathlib import Path

from tests.services.activemq import ActiveMQServer
from tests.services.artemis import ArtemisServer
from tests.support.conservation import consumed
from tests.support.consumer.daemon import Subscription, row_keys, running, site_of
from tests.support.consumer.load import offering

PAUSE_S = 0.02
"""Between two chunks, so that every kill hits messages on their way."""


def test_a_killed_bridge_and_killed_brokers_lose_nothing(
    tmp_path: Path, activemq: ActiveMQServer, artemis: ArtemisServer
) -> None:
    source, target = activemq, artemis
    queue = Subscription(f"/queue/{uuid.uuid4().hex}")
    places = tmp_path / "bridge", tmp_path / "loader"
    for place in places:
        place.mkdir()
    bridge = site_of(places[0], [source.url], queue)
    loader = site_of(places[1], [target.url], queue)

    with (
        offering(source, queue.destination, pause_s=PAUSE_S) as load,
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
