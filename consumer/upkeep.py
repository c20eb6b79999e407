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


IN_VAIN = 2
"""So many turns without work mean that all is done: in one of them another loader may be at it."""


class Upkeep:
    """Call it after each batch, and now and then without one.

    `fold` does some of the work and tells how much. At first there may be what a former life left;
    while nothing is loaded it is left alone. `also` knows by itself when it has something to do.
    """

    def __init__(
        self,
        fold: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        also: Callable[[], None] = lambda: None,
    ) -> None:
        self._fold = fold
        self._also = also
        self._clock = clock
        self._next = clock()
        self._in_vain = 0

    def __call__(self, news: bool) -> None:
        self._also()
        if news:
            self._in_vain = 0
        began = self._clock()
        if began < self._next or self._in_vain == IN_VAIN:
            return
        try:
            self._in_vain = 0 if self._fold() else self._in_vain + 1
        except SqlError as error:  # whoever loads next will meet it, and wait
            logger.debug("statuses not brought up to date: %s", error)
        ended = self._clock()
        self._next = ended + max(EVERY_S, (ended - began) / SHARE)
