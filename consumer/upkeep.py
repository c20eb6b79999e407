"""What is done between two batches: statuses and due days follow what was loaded."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from sql.errors import SqlError

EVERY_S = 1.0
"""How far current_status may be behind, while there is time for it."""
SHARE = 0.1
"""At most this part of the time is taken from loading."""

logger = logging.getLogger(__name__)


class Upkeep:
    """Call it after each batch, and now and then without one; `fold` does some of the work."""

    def __init__(
        self, fold: Callable[[], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fold = fold
        self._clock = clock
        self._next = clock()

    def __call__(self) -> None:
        began = self._clock()
        if began < self._next:
            return
        try:
            self._fold()
        except SqlError as error:  # whoever loads next will meet it, and wait
            logger.debug("statuses not brought up to date: %s", error)
        ended = self._clock()
        self._next = ended + max(EVERY_S, (ended - began) / SHARE)
