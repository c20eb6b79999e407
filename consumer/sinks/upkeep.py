"""What is done between two batches: parked messages are replayed, statuses and due days follow."""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from sqlalchemy import Engine

from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.errors import SqlError
from sam_pipeline.sql.loading.fold import fold
from sam_pipeline.sql.loading.replay import replay_parked

EVERY_S = 1.0
"""How far current_status may be behind, while there is time for it."""
LOOK_EVERY_S = 10.0
"""How often parked messages are looked at whose class does not work yet."""
SHARE = 0.1
"""At most this part of the time is taken from loading, by each task."""
IN_VAIN = 2
"""So many turns without work mean that all is done: in one of them another loader may be at it."""

logger = logging.getLogger(__name__)


class Turn(enum.Enum):
    """What came of a turn."""

    DONE = "some was done, and there may be more"
    WAITING = "there is something to do that can't be done yet"
    NOTHING = "there is nothing to do, unless something was loaded since"


class Task:
    """`turn` does a little of it; without work it is called every `every_s`, for a while."""

    def __init__(self, turn: Callable[[], Turn], every_s: float = EVERY_S) -> None:
        self._turn = turn
        self._every_s = every_s
        self._next = float("-inf")
        self._in_vain = 0

    def __call__(self, news: bool, clock: Callable[[], float]) -> bool:
        """Take a turn if it is due; whether anything was done."""
        if news:
            self._in_vain = 0
        began = clock()
        if began < self._next or self._in_vain == IN_VAIN:
            return False
        turn, wait_s = Turn.WAITING, self._every_s
        try:
            turn = self._turn()
        except SqlError as error:  # whoever loads next will meet it, and wait
            logger.debug("put off: %s", error)
        self._in_vain = self._in_vain + 1 if turn is Turn.NOTHING else 0
        if turn is Turn.DONE:
            wait_s = EVERY_S
        ended = clock()
        self._next = ended + max(wait_s, (ended - began) / SHARE)
        return turn is Turn.DONE


class Upkeep:
    """Call it after each batch, and now and then without one.

    At first there may be what a former life left; while nothing is loaded, and nothing is left to
    do, the database is left alone.
    """

    def __init__(self, tasks: Sequence[Task], clock: Callable[[], float] = time.monotonic) -> None:
        self._tasks = tasks
        self._clock = clock

    def __call__(self, news: bool) -> None:
        for task in self._tasks:
            news = task(news, self._clock) or news


def upkeep_of(engine: Engine, limits: Limits) -> Upkeep:
    """All that a loader of this database looks after."""
    return Upkeep([Task(Replay(engine, limits), LOOK_EVERY_S), Task(lambda: _fold(engine))])


class Replay:
    """Loads what was parked as class-broken, as soon as its view works again."""

    def __init__(self, engine: Engine, limits: Limits) -> None:
        self._engine = engine
        self._limits = limits
        self._loaded = 0

    def __call__(self) -> Turn:
        parked = replay_parked(self._engine, lambda: datetime.now(UTC), self._limits)
        if parked.loaded and not self._loaded:
            logger.info("replaying messages of a class that was broken")
        self._loaded += parked.loaded
        if parked.loaded:
            return Turn.DONE
        if self._loaded:
            logger.info("replayed %d messages of classes that were broken", self._loaded)
            self._loaded = 0
        return Turn.WAITING if parked.any else Turn.NOTHING


def _fold(engine: Engine) -> Turn:
    return Turn.DONE if fold(engine) else Turn.NOTHING
