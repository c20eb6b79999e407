"""The oracle of publishing: what was accepted is delivered or in the spool, whole; nothing else.

conserved(accepted=ids_told, delivered=broker.ids, spool=queue)
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection

from schema.spool import DirectoryQueue
from schema.spool_directory import LOCK, LOCK_AGE_S, TEMPORARY


def conserved(
    accepted: Collection[str],
    delivered: Collection[str],
    spool: DirectoryQueue,
    perhaps: Collection[str] = (),
) -> None:
    """Fail if a message is lost, damaged or of nobody.

    `accepted` are the ids that somebody was told are safe, `perhaps` those of whoever was killed
    before it could tell.
    """
    spooled = {spool.read(name).message_id for name in spool.names()}  # a damaged one raises
    present = spooled | set(delivered)
    assert set(accepted) - present == set(), "accepted and lost"
    assert present - set(accepted) - set(perhaps) == set(), "never published"


def grow_old(spool: DirectoryQueue) -> None:
    """As if the locks and temporary files of whoever was killed were eleven minutes old."""
    for found in spool.walk([LOCK, TEMPORARY]):
        os.utime(spool.path / found.name, (0, time.time() - LOCK_AGE_S - 60))


def leftovers(spool: DirectoryQueue) -> list[str]:
    return [found.name for found in spool.walk([LOCK, TEMPORARY])]
