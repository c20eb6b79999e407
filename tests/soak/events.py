"""What happens during a window: the faults of `tests.kills`, those of steady processes, pauses."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from tests.kills.faults import FAULTS, FREEZE_DATABASE, LATEST_S, Fault, strike
from tests.kills.senders import Kinds
from tests.soak.stage import Stage

PAUSE = "no traffic"
PARTITION = "a broker partitioned from the steady consumer"
PAUSE_S = (5.0, 45.0)
FREEZE_S = 15.0
QUIET_LOAD_S = (2.0, 15.0)
"""Between two events: most of the load meets no fault."""


class Event(NamedTuple):
    """One of EVENTS or of the faults of `tests.kills`."""

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
    weights = {name: weight for name, (weight, _) in FAULTS.items()}
    weights.update({name: weight for name, (weight, _) in EVENTS.items()})
    while True:
        [name] = chance.choices(list(weights), list(weights.values()))
        yield Event(name, chance.uniform(*QUIET_LOAD_S), chance.randrange(10**9))


def cause(stage: Stage, event: Event, pausing: threading.Event) -> float | None:
    """Let it happen; the seconds until the next commit of the killed consumer after a fault."""
    time.sleep(event.after_s)
    chance = random.Random(event.seed)
    if event.name in FAULTS:
        fault = Fault(event.name, chance.uniform(0, LATEST_S), chance.randrange(2), FREEZE_S)
        return strike(stage.scene, fault)
    _, act = EVENTS[event.name]
    if event.name == PAUSE:
        pausing.set()
    try:
        act(stage, chance)
    finally:
        pausing.clear()
    return None


def pausable(kinds: Kinds, pausing: threading.Event, slower: float = 1.0) -> Kinds:
    """The same kinds, which send nothing while it is set."""

    def wrapped(
        kind: Callable[[random.Random], Iterator[None]],
    ) -> Callable[[random.Random], Iterator[None]]:
        def steps(chance: random.Random) -> Iterator[None]:
            for _ in kind(chance):
                yield
                while pausing.is_set():
                    yield

        steps.__name__ = kind.__name__
        return steps

    return {wrapped(kind): slower * pause_s for kind, pause_s in kinds.items()}


def _pause(stage: Stage, chance: random.Random) -> None:
    time.sleep(chance.uniform(*PAUSE_S))


def _partition(stage: Stage, chance: random.Random) -> None:
    stage.partition(chance)


def _freeze(name: str, stage: Stage, chance: random.Random) -> None:
    stage.freeze(name, chance.uniform(2, FREEZE_S))


EVENTS: Mapping[str, tuple[int, Callable[[Stage, random.Random], None]]] = {
    PAUSE: (5, _pause),
    PARTITION: (4, _partition),
    "the steady consumer frozen": (2, partial(_freeze, "consumer")),
    "the steady servlet frozen": (2, partial(_freeze, "servlet")),
    "the long-lived send frozen": (1, partial(_freeze, "send")),
    "spool drain --loop frozen": (1, partial(_freeze, "spool drain --loop")),
}
"""By name: how often, relative to all others, and what happens."""
