"""Oracles for publishing and consuming: nothing is lost, nothing is duplicated.

conserved(accepted=ids, delivered=broker.ids, spool=queue)
consumed(accepted=keys, rows=row_keys(site), dead_letters=dead_letter_keys(site))
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.directory import LOCK, LOCK_AGE_S, TEMPORARY
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.builders import metric_message, metric_result

FIRST_TIMESTAMP = 1_795_000_000
DAY_S = 86_400
"""Records of one host are a second apart, so that none of them lies in the future."""
_SUMMARY = re.compile(rb"summaryData: (\S+)")


def conserved(
    accepted: Collection[str],
    delivered: Collection[str],
    spool: DirectoryQueue,
    uncertain: Collection[str] = (),
) -> None:
    """Fail if a message is lost, damaged or was never sent.

    `accepted` are the ids reported as stored, `uncertain` those of a publisher that was killed
    before it could report.
    """
    spooled = {spool.read(name).message_id for name in spool.names()}  # a damaged element raises
    present = spooled | set(delivered)
    assert set(accepted) - present == set(), "accepted and lost"
    assert present - set(accepted) - set(uncertain) == set(), "never published"


def grow_old(spool: DirectoryQueue) -> None:
    """Make the locks and temporary files of killed processes look eleven minutes old."""
    for entry in spool.walk([LOCK, TEMPORARY]):
        os.utime(spool.path / entry.name, (0, time.time() - LOCK_AGE_S - 60))


def leftovers(spool: DirectoryQueue) -> list[str]:
    return [entry.name for entry in spool.walk([LOCK, TEMPORARY])]


def consumed(
    accepted: Collection[str],
    rows: Sequence[str],
    dead_letters: Sequence[str] = (),
    spool: Sequence[str] = (),
    backlog: Sequence[str] = (),
    uncertain: Collection[str] = (),
) -> None:
    """Fail unless each accepted record exists once: as a row, dead letter, in a spool or a broker.

    All arguments are keys of records (`key_of`); `uncertain` are those of records that were sent
    without a confirmation.
    """
    keys_by_place = {"rows": rows, "dead letters": dead_letters, "spool": spool, "backlog": backlog}
    for place, keys in keys_by_place.items():
        assert len(keys) == len(set(keys)), f"twice among the {place}"
    for (first, first_keys), (second, second_keys) in combinations(keys_by_place.items(), 2):
        assert not set(first_keys) & set(second_keys), f"among the {first} and the {second}"
    present = set(chain.from_iterable(keys_by_place.values()))
    assert set(accepted) - present == set(), "accepted and lost"
    assert present - set(accepted) - set(uncertain) == set(), "never published"


@dataclass(frozen=True)
class Account:
    """Which records are missing, or present in more places than they may be."""

    lost: set[str]
    twice: set[str]
    """More than one row or dead letter; copies in a spool or a broker are not loaded yet."""
    unknown: set[str]
    """Never published."""

    @property
    def is_balanced(self) -> bool:
        return not (self.lost or self.twice or self.unknown)


def account(
    accepted: Collection[str],
    uncertain: Collection[str],
    *,
    stored: Iterable[str],
    waiting: Collection[str],
) -> Account:
    """Compare the keys of the published records with those that exist.

    Unlike `consumed`, for publishers that may send a record to a second broker: until it is loaded
    it may exist there more than once.

    Args:
        uncertain: records of publishers that were killed, or failed.
        stored: rows and dead letters, one key for each.
        waiting: in a spool or at a broker.
    """
    copies = Counter(stored)
    present = {*copies, *waiting}
    return Account(
        lost={*accepted} - present,
        twice={key for key, count in copies.items() if count > 1},
        unknown=present - {*accepted} - {*uncertain},
    )


def keys_of(body: bytes) -> list[str]:
    """The keys of all records of this body, whether they can be loaded or not."""
    return [key.decode() for key in _SUMMARY.findall(body)]


def numbered(
    prefix: str, numbers: Iterable[int], first: int = FIRST_TIMESTAMP, **changes: str
) -> list[Message]:
    """Messages of one result each, all with different natural keys and a different `key_of`.

    They were measured in the DAY_S seconds from `first`.
    """
    return [
        metric_message(
            metric_result(
                **{
                    "hostName": f"ce{number // DAY_S}.example.org",
                    "metricName": f"org.sam.{prefix}",
                    "timestamp": str(first + number % DAY_S),
                    "summaryData": f"{prefix}-{number}",
                    **changes,
                }
            )
        )
        for number in numbers
    ]


def key_of(body: bytes) -> str:
    """The key of the only record of this body, whether it can be loaded or not."""
    match = _SUMMARY.search(body)
    assert match, f"not a numbered record: {body!r}"
    return match[1].decode()
