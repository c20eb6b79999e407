"""Work between two batches: parked messages are replayed, statuses and due days are folded."""

from __future__ import annotations

import enum
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sqlalchemy import Engine

from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.errors import SqlError
from sam_pipeline.sql.loading.fold import fold
from sam_pipeline.sql.loading.replay import replay_parked

EVERY_S = 1.0
"""How far current_status may be behind, while there is time for it."""
PARKED_EVERY_S = 10.0
"""How often to look again at parked messages whose class does not work yet."""
SHARE = 0.1
"""The share of the time that each task may take from loading."""
IN_VAIN = 2
"""After this many turns without work all is done: during one of them another loader may do it."""

logger = logging.getLogger(__name__)


class TurnResult(enum.Enum):
    DONE = "some was done, and there may be more"
    WAITING = "there is work that can't be done yet"
    NOTHING = "there is nothing to do, unless something was loaded since"


@dataclass
class PeriodicTask:
    """`turn` does a little of the work; it is called every `every_s` until there is none left."""

    turn: Callable[[], TurnResult]
    every_s: float = EVERY_S
    clock: Callable[[], float] = time.monotonic
    _next: float = field(default=-math.inf, init=False)
    _in_vain: int = field(default=0, init=False)

    def run(self, news: bool) -> bool:
        """Take a turn if it is due; whether anything was done. `news`: there may be new work."""
        if news:
            self._in_vain = 0
        began = self.clock()
        if began < self._next or self._in_vain == IN_VAIN:
            return False
        try:
            result = self.turn()
        except SqlError as error:  # the next batch will meet it, and wait
            logger.debug("put off: %s", error)
            result = TurnResult.WAITING
        self._in_vain = self._in_vain + 1 if result is TurnResult.NOTHING else 0
        done = result is TurnResult.DONE
        ended = self.clock()
        wait_s = EVERY_S if done else self.every_s
        self._next = ended + max(wait_s, (ended - began) / SHARE)
        return done


def run_due(tasks: Sequence[PeriodicTask], news: bool) -> None:
    """Call it after each batch, and now and then without one.

    The first turns find what a former process left. Once there is no work left, and without news,
    the database is not asked.
    """
    for task in tasks:
        news = task.run(news) or news


def make_tasks(engine: Engine, limits: Limits) -> list[PeriodicTask]:
    """Everything that a loader of this database looks after."""
    replayed = 0

    def replay() -> TurnResult:
        """Load messages that were parked as class-broken, once their view works again."""
        nonlocal replayed
        parked = replay_parked(engine, lambda: datetime.now(UTC), limits)
        if parked.loaded:
            if not replayed:
                logger.info("replaying messages of a class that was broken")
            replayed += parked.loaded
            return TurnResult.DONE
        if replayed:
            logger.info("replayed %d messages of classes that were broken", replayed)
            replayed = 0
        return TurnResult.WAITING if parked.any else TurnResult.NOTHING

    folding = PeriodicTask(lambda: TurnResult.DONE if fold(engine) else TurnResult.NOTHING)
    return [PeriodicTask(replay, PARKED_EVERY_S), folding]
