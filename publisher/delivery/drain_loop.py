"""Drain for as long as the process lives: whatever comes into the spool goes on to a broker."""

from __future__ import annotations

import time
from threading import Event

from sam_pipeline.publisher.delivery.drain import Drain, drain
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.log import lazy_logger

MIN_WAIT_S, IDLE_WAIT_S, MAX_WAIT_S = 0.5, 4.0, 30.0
"""Between two looks at the spool, each wait twice the last: when it is empty a look is cheap, so
the second is the longest, and the third where no broker took anything."""
REST_S = 300.0
"""So long a rejected element is not sent again."""

logger = lazy_logger(__name__)


def drain_until(
    stop: Event, config: PublisherConfig, min_wait_s: float = MIN_WAIT_S, rest_s: float = REST_S
) -> Drain:
    """All rounds summed up. A batch under way is ended first: `stop` loses and repeats nothing."""
    total = Drain()
    wait_s, rest_until = min_wait_s, 0.0
    while not stop.is_set():
        if time.monotonic() > rest_until:
            total.rejected.clear()
            rest_until = time.monotonic() + rest_s
        sent = _round(config, stop, total)
        longest_s = IDLE_WAIT_S if total.complete else MAX_WAIT_S
        wait_s = min_wait_s if sent else min(wait_s * 2, longest_s)
        stop.wait(wait_s)
    return total


def _round(config: PublisherConfig, stop: Event, total: Drain) -> int:
    """How many were sent."""
    try:
        result = drain(config, lambda _: not stop.is_set(), frozenset(total.rejected))
    except SpoolError as error:  # such as a file server that is away: it may come back
        logger.error("%s", error)
        total.complete = False
        return 0
    if result.sent:
        logger.info("drained %s messages from %s", result.sent, config.spool)
    total.add(result)
    return result.sent
