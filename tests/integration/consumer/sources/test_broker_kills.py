"""Brokers that are killed under load: each confirmed message becomes one row."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.services.activemq import ActiveMQServer
from tests.services.artemis import ArtemisServer
from tests.services.broker import StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.support.conservation import consumed
from tests.support.consumer.daemon import (
    SUBSCRIBED,
    Daemon,
    Subscription,
    row_keys,
    running,
    settled_row_keys,
    site_of,
)
from tests.support.consumer.load import Load, offering

BACK_WITHIN_S = 10.0


def test_brokers_killed_in_turn_under_load_lose_nothing_and_are_soon_reconnected(
    tmp_path: Path, activemq: ActiveMQServer, artemis: ArtemisServer, rabbitmq: RabbitMQServer
) -> None:
    loads, took_s = kill_in_turn(tmp_path, [activemq, artemis, rabbitmq], rounds=1)

    assert max(took_s) < BACK_WITHIN_S, took_s
    assert all(load.again for load in loads), "each broker was killed while messages were in flight"


def kill_in_turn(
    directory: Path, brokers: Sequence[StompServer], rounds: int
) -> tuple[list[Load], list[float]]:
    """Run one consumer of all brokers under load and kill each broker once per round.

    Returns:
        The loads, and the seconds from each restart of a broker until the consumer reconnected.

    Raises:
        AssertionError: a message was lost or duplicated.
    """
    destination = f"/topic/grid.probe.{uuid.uuid4().hex}"
    urls = [broker.url for broker in brokers]
    site = site_of(directory, urls, Subscription(destination))
    with running(site) as daemon:
        daemon.wait_until_subscribed(*urls)
        with ExitStack() as stack:
            loads = [stack.enter_context(offering(broker, destination)) for broker in brokers]
            took_s = [back_after_kill(load, daemon) for _ in range(rounds) for load in loads]
        accepted = [key for load in loads for key in load.accepted]
        consumed(accepted, settled_row_keys(site, accepted))
        stopped = daemon.stop()
    consumed(accepted, row_keys(site))
    assert stopped.code == 0
    return loads, took_s


def back_after_kill(load: Load, daemon: Daemon) -> float:
    """Restart the broker under load; the seconds until the consumer has subscribed again."""
    broker = load.broker
    load.wait_for_more()
    times = len(daemon.lines(broker.url, SUBSCRIBED)) + 1
    broker.restart()
    answered = time.monotonic()
    daemon.wait_until_subscribed(broker.url, times=times)
    return time.monotonic() - answered
