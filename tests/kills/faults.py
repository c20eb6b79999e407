"""The faults of a soak: kills, freezes, reloads of consumer, servlet, brokers and database."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import NamedTuple

from tests.kills.scene import Scene
from tests.support.consumer.daemon import STARTING
from tests.support.consumer.faults import WAITING

LATEST_S = 0.6
"""The longest time from a commit to the next fault."""
FREEZE_S = 20.0
HAND_S = 2.0
"""How long the consumer holds a batch while its database is away."""


class Fault(NamedTuple):
    """One of FAULTS, `after_s` after a commit; `broker` is the index of the broker it hits."""

    name: str
    after_s: float
    broker: int = 0
    freeze_s: float = FREEZE_S


def strike(scene: Scene, fault: Fault) -> float:
    """Cause the fault under load and end it; the seconds until the next commit."""
    scene.wait_for_commit()
    time.sleep(fault.after_s)
    _, act = FAULTS[fault.name]
    act(scene, fault)
    return scene.wait_for_commit()


def _kill_consumer(scene: Scene, fault: Fault) -> None:
    scene.kill_consumer()
    scene.start_consumer()


def _kill_servlet(scene: Scene, fault: Fault) -> None:
    scene.kill_servlet()
    scene.start_servlet()


def _reload(scene: Scene, fault: Fault) -> None:
    """Both start again with the same configuration, in the same process."""
    for daemon in (scene.daemon, scene.servlet):
        daemon.wait_for(STARTING)  # earlier, before it handles signals, SIGHUP would end it
        daemon.process.send_signal(signal.SIGHUP)


def _kill_broker(scene: Scene, fault: Fault) -> None:
    scene.brokers[fault.broker].restart()


def _kill_brokers(scene: Scene, fault: Fault) -> None:
    for broker in scene.brokers:
        broker.kill()
    for broker in scene.brokers:
        broker.restart()


def _kill_database(scene: Scene, fault: Fault) -> None:
    scene.postgres.restart()


def _kill_all(scene: Scene, fault: Fault) -> None:
    scene.kill_consumer()
    scene.kill_servlet()
    scene.postgres.kill()
    _kill_brokers(scene, fault)
    scene.postgres.restart()
    scene.start_servlet()
    scene.start_consumer()


def _kill_consumer_without_database(scene: Scene, fault: Fault) -> None:
    """An ack before the commit loses the batch that waits for the database."""
    scene.postgres.kill()
    scene.daemon.wait_for(WAITING)
    time.sleep(HAND_S)
    scene.kill_consumer()
    scene.postgres.restart()
    scene.start_consumer()


def _kill_consumer_with_frozen_database(scene: Scene, fault: Fault) -> None:
    with scene.postgres.process.frozen():
        time.sleep(HAND_S)
        scene.kill_consumer()
    scene.start_consumer()


def _freeze_consumer(scene: Scene, fault: Fault) -> None:
    """Brokers, HTTP clients, and whoever waits for its locks, see one that does not answer."""
    scene.daemon.process.send_signal(signal.SIGSTOP)
    time.sleep(fault.freeze_s)
    scene.daemon.process.send_signal(signal.SIGCONT)


def _freeze_servlet(scene: Scene, fault: Fault) -> None:
    scene.servlet.process.send_signal(signal.SIGSTOP)
    time.sleep(fault.freeze_s)
    scene.servlet.process.send_signal(signal.SIGCONT)


def _freeze_and_kill_consumer(scene: Scene, fault: Fault) -> None:
    scene.daemon.process.send_signal(signal.SIGSTOP)
    time.sleep(fault.freeze_s)
    _kill_consumer(scene, fault)


def _freeze_broker(scene: Scene, fault: Fault) -> None:
    with scene.brokers[fault.broker].frozen():
        time.sleep(fault.freeze_s)


def _freeze_brokers(scene: Scene, fault: Fault) -> None:
    """Publishers have only the spool."""
    with ExitStack() as stack:
        for broker in scene.brokers:
            stack.enter_context(broker.frozen())
        time.sleep(fault.freeze_s)


def _freeze_database(scene: Scene, fault: Fault) -> None:
    with scene.postgres.process.frozen():
        time.sleep(fault.freeze_s)


KILL_ALL = "all killed"
KILL_SERVLET = "servlet killed"
RELOAD = "consumer and servlet reloaded"
KILL_IN_OUTAGE = "consumer killed while its database is away"
FREEZE_BROKER = "a broker frozen"
FREEZE_DATABASE = "database frozen"

FAULTS: Mapping[str, tuple[int, Callable[[Scene, Fault], None]]] = {
    "consumer killed": (4, _kill_consumer),
    KILL_SERVLET: (3, _kill_servlet),
    RELOAD: (2, _reload),
    "a broker killed": (2, _kill_broker),
    "both brokers killed": (1, _kill_brokers),
    "database killed": (2, _kill_database),
    KILL_ALL: (1, _kill_all),
    KILL_IN_OUTAGE: (3, _kill_consumer_without_database),
    "consumer killed while its database is frozen": (2, _kill_consumer_with_frozen_database),
    "consumer frozen": (1, _freeze_consumer),
    "consumer frozen, then killed": (1, _freeze_and_kill_consumer),
    "servlet frozen": (1, _freeze_servlet),
    FREEZE_BROKER: (1, _freeze_broker),
    "both brokers frozen": (1, _freeze_brokers),
    FREEZE_DATABASE: (1, _freeze_database),
}
"""By name: how often, relative to the others, and what happens."""
