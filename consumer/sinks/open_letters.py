"""How many dead letters wait for somebody: asked now and then, so that nobody else needs to."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from sam_pipeline.consumer.core.state import State
from sam_pipeline.sql.errors import DatabaseAway, SqlError

EVERY_S = 30.0

logger = logging.getLogger(__name__)


class OpenLetters:
    """Call it often. It also notices, without anything to load, that the database is away."""

    def __init__(
        self,
        count: Callable[[], Mapping[str, int]],
        state: State,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count = count
        self._state = state
        self._clock = clock
        self._next = clock()

    def __call__(self) -> None:
        if self._clock() < self._next:
            return
        try:
            self._state.open_dead_letters = self._count()
            self._state.can_commit()
        except DatabaseAway as error:
            self._state.cannot_commit(str(error))
        except SqlError as error:
            logger.warning("open dead letters not counted: %s", error)
        self._next = self._clock() + EVERY_S
