"""Work between two batches: coming partitions, parked messages, statuses and due days."""

from __future__ import annotations

import enum
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sam_pipeline.sql.database.partitions import days_until
from sam_pipeline.sql.errors import SqlError
from sam_pipeline.sql.loading.fold import fold
from sam_pipeline.sql.loading.load import Loader
from sam_pipeline.sql.loading.replay import replay_parked

EVERY_S = 1.0
"""How often to fold while there is time for it, which bounds the age of current_status."""
PARKED_EVERY_S = 10.0
"""How often to retry parked messages whose class does not work yet."""
COMING_EVERY_S = 600.0
"""How often to look for coming days that need partitions."""
A_DAY, COMING = timedelta(days=1), timedelta(days=3)
"""How far ahead partitions are created: at least, and at most."""
SHARE = 0.1
"""The share of time that each task may take from loading."""
WATCH_SHARE = 0.03
"""The same for the search for silent probes, which reads all statuses."""
IDLE_TURNS = 2
"""Turns without work after which a task rests; in one turn another loader may be doing the work."""

logger = logging.getLogger(__name__)


class TurnResult(enum.Enum):
    """The result of one turn of a periodic task."""

    DONE = "some work was done, and there may be more"
    WAITING = "there is work that can't be done yet"
    NOTHING = "nothing to do until something is loaded"


@dataclass
class PeriodicTask:
    """A task whose `turn` does a little work, called every `every_s` while there is any.

    `in_background`: in a thread of its own, while loading goes on.
    """

    turn: Callable[[], TurnResult]
    every_s: float = EVERY_S
    clock: Callable[[], float] = time.monotonic
    in_background: bool = False
    share: float = SHARE
    _thread: threading.Thread | None = field(default=None, init=False)
    _next: float = field(default=-math.inf, init=False)
    _idle_turns: int = field(default=0, init=False)

    def run(self, news: bool) -> bool:
        """Take a turn if one is due; whether work was done. `news`: there may be new work."""
        if news:
            self._idle_turns = 0
        if self._is_running or self.clock() < self._next or self._idle_turns == IDLE_TURNS:
            return False
        if not self.in_background:
            return self._take_turn()
        self._thread = threading.Thread(target=self._take_turn, name="upkeep", daemon=True)
        self._thread.start()
        return False

    def wait(self) -> None:
        """Wait for the end of a turn in the background."""
        if self._thread is not None:
            self._thread.join()

    @property
    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _take_turn(self) -> bool:
        began = self.clock()
        try:
            result = self.turn()
        except SqlError as error:  # the next batch gets the same error, and waits
            logger.debug("postponed: %s", error)
            result = TurnResult.WAITING
        self._idle_turns = self._idle_turns + 1 if result is TurnResult.NOTHING else 0
        done = result is TurnResult.DONE
        ended = self.clock()
        wait_s = EVERY_S if done else self.every_s
        self._next = ended + max(wait_s, (ended - began) / self.share)
        return done


def run_due(tasks: Sequence[PeriodicTask], news: bool) -> None:
    """Run the tasks that are due; to be called after each batch, and regularly without one.

    The first turns do the work that an earlier process left. A task without work does not query the
    database until there is news.
    """
    for task in tasks:
        news = task.run(news) or news


def make_tasks(
    loader: Loader,
    clock: Callable[[], datetime],
    class_works: Callable[[str], None],
    watch: Callable[[], TurnResult] | None = None,
) -> list[PeriodicTask]:
    """The tasks of every process that loads into this database.

    `class_works` is called with the name of a class of which parked messages were loaded. `watch`
    looks for silent probes.
    """
    replayed, engine, limits = 0, loader.engine, loader.limits

    def create_coming() -> TurnResult:
        """Create the partitions of today and the coming days."""
        now = clock()
        loader.catalogue.partitions.make(
            days_until(now, now + min(COMING, max(limits.future, A_DAY)))
        )
        return TurnResult.WAITING  # for another day to come

    def replay() -> TurnResult:
        """Load messages that were parked as class-broken, once their view works."""
        nonlocal replayed
        parked = replay_parked(engine, clock, limits, loader.authority)
        if parked.loaded:
            class_works(parked.message_class)
            if not replayed:
                logger.info("replaying messages of a class that was broken")
            replayed += parked.loaded
            return TurnResult.DONE
        if replayed:
            logger.info("replayed %d messages of classes that were broken", replayed)
            replayed = 0
        return TurnResult.WAITING if parked.any else TurnResult.NOTHING

    folding = PeriodicTask(
        lambda: TurnResult.DONE if fold(engine) else TurnResult.NOTHING,
        in_background=engine.dialect.name == "postgresql",  # SQLite has a single writer
    )
    tasks = [
        PeriodicTask(create_coming, COMING_EVERY_S),
        PeriodicTask(replay, PARKED_EVERY_S),
        folding,
    ]
    if watch:
        tasks.append(PeriodicTask(watch, in_background=True, share=WATCH_SHARE))
    return tasks
