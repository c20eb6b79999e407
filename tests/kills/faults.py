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


def _kill_consumer(scene: Scene, _: Fault) -> None:
    scene.kill_consumer()
    scene.start_consumer()


def _kill_servlet(scene: Scene, _: Fault) -> None:
    scene.kill_servlet()
    scene.start_servlet()


def _reload(scene: Scene, _: Fault) -> None:
    """Both start again with the same configuration, in the same process."""
    for daemon in (scene.daemon, scene.servlet):
        daemon.wait_for(STARTING)  # earlier, before it handles signals, SIGHUP would end it
        daemon.process.send_signal(signal.SIGHUP)


def _kill_brokers(scene: Scene, _: Fault) -> None:
    for broker in scene.brokers:
        broker.kill()
    for broker in scene.brokers:
        broker.restart()


def _kill_all(scene: Scene, fault: Fault) -> None:
    scene.kill_consumer()
    scene.kill_servlet()
    scene.postgres.kill()
    _kill_brokers(scene, fault)
    scene.postgres.restart()
    scene.start_servlet()
    scene.start_consumer()


def _kill_consumer_without_database(scene: Scene, _: Fault) -> None:
    """An ack before the commit loses the batch that waits for the database."""
    scene.postgres.kill()
    scene.daemon.wait_for(WAITING)
    time.sleep(HAND_S)
    scene.kill_consumer()
    scene.postgres.restart()
    scene.start_consumer()


def _kill_consumer_with_frozen_database(scene: Scene, _: Fault) -> None:
    with scene.postgres.process.frozen():
        time.sleep(HAND_S)
        scene.kill_consumer()
    scene.start_consumer()


def _freeze(*names: str) -> Callable[[Scene, Fault], None]:
    """HTTP clients, and whoever waits for a lock of these, see one that does not answer."""

    def freeze(scene: Scene, fault: Fault) -> None:
        with ExitStack() as stack:
            for name in names:
                if name == "brokers":
                    for broker in scene.brokers:
                        stack.enter_context(broker.frozen())
                elif name == "broker":
                    stack.enter_context(scene.brokers[fault.broker].frozen())
                elif name == "database":
                    stack.enter_context(scene.postgres.process.frozen())
                else:
                    process = getattr(scene, name).process
                    process.send_signal(signal.SIGSTOP)
                    stack.callback(process.send_signal, signal.SIGCONT)
            time.sleep(fault.freeze_s)

    return freeze


def _freeze_and_kill_consumer(scene: Scene, fault: Fault) -> None:
    scene.daemon.process.send_signal(signal.SIGSTOP)
    time.sleep(fault.freeze_s)
    _kill_consumer(scene, fault)


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
    "a broker killed": (2, lambda scene, fault: scene.brokers[fault.broker].restart()),
    "both brokers killed": (1, _kill_brokers),
    "database killed": (2, lambda scene, fault: scene.postgres.restart()),
    KILL_ALL: (1, _kill_all),
    KILL_IN_OUTAGE: (3, _kill_consumer_without_database),
    "consumer killed while its database is frozen": (2, _kill_consumer_with_frozen_database),
    "consumer frozen": (1, _freeze("daemon")),
    "consumer frozen, then killed": (1, _freeze_and_kill_consumer),
    "servlet frozen": (1, _freeze("servlet")),
    FREEZE_BROKER: (1, _freeze("broker")),
    "both brokers frozen": (1, _freeze("brokers")),
    FREEZE_DATABASE: (1, _freeze("database")),
}
"""By name: how often, relative to the others, and what happens."""
