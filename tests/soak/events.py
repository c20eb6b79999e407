"""What happens under load: kills, freezes, reloads of everything, partitions, pauses."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import NamedTuple

from tests.soak.stage import Stage
from tests.support.consumer.daemon import STARTING
from tests.support.consumer.faults import WAITING

LATEST_S = 0.6
"""The longest time from a commit to the next fault."""
HAND_S = 2.0
"""How long the consumer holds a batch while its database is away."""
FREEZE_S = 15.0
PAUSE_S = (5.0, 45.0)
QUIET_LOAD_S = (2.0, 15.0)
"""Between two events: most of the load meets no fault."""

Act = Callable[[Stage, random.Random], None]


class Event(NamedTuple):
    """One of FAULTS or of EVENTS, after a while; its seed decides on broker and duration."""

    name: str
    after_s: float
    seed: int


def events(seed: str) -> Iterator[Event]:
    """An endless sequence, the same for the same seed.

    The first one fills the buffers of all consumers: what they need at most shows in the first
    tenth of a run, and what grows later is something else.
    """
    yield Event(FREEZE_DATABASE, QUIET_LOAD_S[0], 0)
    chance = random.Random(seed)
    weights = {name: weight for name, (weight, _) in {**FAULTS, **EVENTS}.items()}
    while True:
        [name] = chance.choices(list(weights), list(weights.values()))
        yield Event(name, chance.uniform(*QUIET_LOAD_S), chance.randrange(10**9))


def cause(stage: Stage, event: Event) -> float | None:
    """Let it happen; the seconds until the next commit of the killed consumer after a fault."""
    time.sleep(event.after_s)
    chance = random.Random(event.seed)
    if event.name in EVENTS:
        EVENTS[event.name][1](stage, chance)
        return None
    stage.wait_for_commit()
    time.sleep(chance.uniform(0, LATEST_S))
    FAULTS[event.name][1](stage, chance)
    return stage.wait_for_commit()


def _kill_consumer(stage: Stage, _: random.Random) -> None:
    stage.kill_consumer()
    stage.start_consumer()


def _kill_servlet(stage: Stage, _: random.Random) -> None:
    stage.kill_servlet()
    stage.start_servlet()


def _reload(stage: Stage, _: random.Random) -> None:
    """Both start again with the same configuration, in the same process."""
    for daemon in (stage.daemon, stage.servlet):
        daemon.wait_for(STARTING)  # earlier, before it handles signals, SIGHUP would end it
        daemon.process.send_signal(signal.SIGHUP)


def _kill_brokers(stage: Stage, _: random.Random) -> None:
    for broker in stage.running:
        broker.kill()
    for broker in stage.running:
        broker.restart()


def _kill_all(stage: Stage, chance: random.Random) -> None:
    stage.kill_consumer()
    stage.kill_servlet()
    stage.postgres.kill()
    _kill_brokers(stage, chance)
    stage.postgres.restart()
    stage.start_servlet()
    stage.start_consumer()


def _kill_consumer_without_database(stage: Stage, _: random.Random) -> None:
    """An ack before the commit loses the batch that waits for the database."""
    stage.postgres.kill()
    stage.daemon.wait_for(WAITING)
    time.sleep(HAND_S)
    stage.kill_consumer()
    stage.postgres.restart()
    stage.start_consumer()


def _kill_consumer_with_frozen_database(stage: Stage, _: random.Random) -> None:
    with stage.postgres.process.frozen():
        time.sleep(HAND_S)
        stage.kill_consumer()
    stage.start_consumer()


def _freeze_and_kill_consumer(stage: Stage, chance: random.Random) -> None:
    stage.daemon.process.send_signal(signal.SIGSTOP)
    time.sleep(FREEZE_S)
    _kill_consumer(stage, chance)


@contextmanager
def _stopped(process: subprocess.Popen[bytes]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def _freeze(what: Callable[[Stage, random.Random], list[AbstractContextManager[None]]]) -> Act:
    """HTTP clients, and whoever waits for a lock of these, see one that does not answer."""

    def freeze(stage: Stage, chance: random.Random) -> None:
        with ExitStack() as stack:
            for frozen in what(stage, chance):
                stack.enter_context(frozen)
            time.sleep(FREEZE_S)

    return freeze


def _steady(name: str) -> Act:
    return _freeze(lambda stage, _: [_stopped(stage.steady[name])])


def _partition(stage: Stage, chance: random.Random) -> None:
    stage.partition(chance)


def _pause(stage: Stage, chance: random.Random) -> None:
    stage.pausing.set()
    try:
        time.sleep(chance.uniform(*PAUSE_S))
    finally:
        stage.pausing.clear()


KILL_ALL = "all killed"
RELOAD = "consumer and servlet reloaded"
KILL_IN_OUTAGE = "consumer killed while its database is away"
FREEZE_BROKER = "a broker frozen"
FREEZE_DATABASE = "database frozen"

FAULTS: Mapping[str, tuple[int, Act]] = {
    "consumer killed": (4, _kill_consumer),
    "servlet killed": (3, _kill_servlet),
    RELOAD: (2, _reload),
    "a broker killed": (2, lambda stage, chance: chance.choice(stage.running).restart()),
    "both brokers killed": (1, _kill_brokers),
    "database killed": (2, lambda stage, _: stage.postgres.restart()),
    KILL_ALL: (1, _kill_all),
    KILL_IN_OUTAGE: (3, _kill_consumer_without_database),
    "consumer killed while its database is frozen": (2, _kill_consumer_with_frozen_database),
    "consumer frozen": (1, _freeze(lambda stage, _: [_stopped(stage.daemon.process)])),
    "consumer frozen, then killed": (1, _freeze_and_kill_consumer),
    "servlet frozen": (1, _freeze(lambda stage, _: [_stopped(stage.servlet.process)])),
    FREEZE_BROKER: (1, _freeze(lambda stage, chance: [chance.choice(stage.running).frozen()])),
    "both brokers frozen": (1, _freeze(lambda stage, _: [one.frozen() for one in stage.running])),
    FREEZE_DATABASE: (1, _freeze(lambda stage, _: [stage.postgres.process.frozen()])),
}
"""Of the killed consumer, its servlet and their surroundings: how often, and what happens."""
EVENTS: Mapping[str, tuple[int, Act]] = {
    "no traffic": (5, _pause),
    "a broker partitioned from the steady consumer": (4, _partition),
    "the steady consumer frozen": (2, _steady("consumer")),
    "the steady servlet frozen": (2, _steady("servlet")),
    "the long-lived send frozen": (1, _steady("send")),
    "spool drain --loop frozen": (1, _steady("spool drain --loop")),
}
"""The others, after which no commit is awaited: how often, and what happens."""
