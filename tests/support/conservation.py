"""The oracles of publishing and of consuming: nothing is lost, and nothing is there twice.

conserved(accepted=ids_told, delivered=broker.ids, spool=queue)
consumed(accepted=keys_told, rows=site.keys(), dead_letters=site.dead_letter_keys())
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, combinations

from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.directory import LOCK, LOCK_AGE_S, TEMPORARY
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.builders import metric_message, metric_result

FIRST_TIMESTAMP = 1_795_000_000
DAY_S = 86_400
"""Records of one host, a second apart: none of them lies in the future."""
_SUMMARY = re.compile(rb"summaryData: (\S+)")


def conserved(
    accepted: Collection[str],
    delivered: Collection[str],
    spool: DirectoryQueue,
    perhaps: Collection[str] = (),
) -> None:
    """Fail if a message is lost, damaged or was never sent.

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


def consumed(
    accepted: Collection[str],
    rows: Sequence[str],
    dead_letters: Sequence[str] = (),
    spool: Sequence[str] = (),
    backlog: Sequence[str] = (),
    perhaps: Collection[str] = (),
) -> None:
    """Fail unless each accepted record is a row, a dead letter, in a spool or at a broker, once.

    All are keys of records (`key_of`). `perhaps` are those of a publisher that was not told.
    """
    places = {"rows": rows, "dead letters": dead_letters, "spool": spool, "backlog": backlog}
    for place, keys in places.items():
        assert len(keys) == len(set(keys)), f"twice among the {place}"
    for (one, ours), (other, theirs) in combinations(places.items(), 2):
        assert not set(ours) & set(theirs), f"among the {one} and the {other}"
    present = set(chain.from_iterable(places.values()))
    assert set(accepted) - present == set(), "accepted and lost"
    assert present - set(accepted) - set(perhaps) == set(), "never published"


def numbered(prefix: str, numbers: Iterable[int], **changes: str) -> list[Message]:
    """Messages of one result each; no two have the same natural key, or the same `key_of`."""
    return [
        metric_message(
            metric_result(
                **{
                    "hostName": f"ce{number // DAY_S}.example.org",
                    "metricName": f"org.sam.{prefix}",
                    "timestamp": str(FIRST_TIMESTAMP + number % DAY_S),
                    "summaryData": f"{prefix}-{number}",
                    **changes,
                }
            )
        )
        for number in numbers
    ]


def key_of(body: bytes) -> str:
    """The key of the only record of this body, loadable or not."""
    found = _SUMMARY.search(body)
    assert found, f"no record of ours: {body!r}"
    return found[1].decode()
