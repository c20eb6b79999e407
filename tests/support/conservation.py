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
    # A damaged element raises.
    spooled = {spool.read(name).message_id for name in spool.names()}
    found = account(accepted, uncertain, stored=(), waiting=spooled | set(delivered))
    assert found.is_balanced, found


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
    uncertain: Collection[str] = (),
) -> None:
    """Fail unless each accepted record exists once: as a row, or as a dead letter.

    All arguments are keys of records (`key_of`); `uncertain` are those of records that were sent
    without a confirmation.
    """
    found = account(accepted, uncertain, stored=[*rows, *dead_letters], waiting=())
    assert found.is_balanced, found


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

    Until it is loaded, a record may exist more than once: a publisher may send it to two brokers.

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
