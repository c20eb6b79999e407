"""The audit of loading: one row per transaction of a loader, written in that transaction."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from sqlalchemy import Connection, text

# The database fills in the time and the login.
_INSERT = text("""
    INSERT INTO loaded_batch (
        consumer, host, process_id, brokers, publishers, messages, rows, duplicates, dead_letters,
        repeated_dead_letters, summarised_dead_letters, checks
    )
    VALUES (
        :consumer, :host, :process_id, :brokers, :publishers, :messages, :rows, :duplicates,
        :dead_letters, :repeated_dead_letters, :summarised_dead_letters, :checks
    )
""")


@dataclass(frozen=True)
class Audit:
    """The process that loads some messages, and the broker (or file) of each."""

    consumer: str
    host: str
    process_id: int
    brokers: Sequence[str]

    def of_part(self, start: int, stop: int) -> Audit:
        """The audit of the messages from `start` up to `stop`."""
        return replace(self, brokers=self.brokers[start:stop])


def write_audit(
    connection: Connection,
    audit: Audit,
    accepted: Counter[str],
    refused: Counter[str],
    **counts: int,
) -> None:
    """Insert the row in the caller's transaction: it exists if and only if the rows do.

    `accepted` and `refused` have the records by identity. `counts`: messages, rows, duplicates,
    dead_letters, repeated_dead_letters, summarised_dead_letters and checks.
    """
    publishers = {
        identity: (accepted[identity], refused[identity])
        for identity in sorted({*+accepted, *refused})
    }
    values = {"brokers": json.dumps(Counter(audit.brokers)), "publishers": json.dumps(publishers)}
    connection.execute(_INSERT, {**asdict(audit), **counts, **values})
