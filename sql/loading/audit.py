"""The audit of loading: one row per transaction of a loader, written in that transaction."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from sqlalchemy import Connection, text

from sam_pipeline.schema.messages.counts import Counts

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
    counts: Counts,
    accepted: Counter[str],
    refused: Counter[str],
) -> None:
    """Insert the row in the caller's transaction: it exists if and only if the rows do.

    `accepted` and `refused` have the records by identity.
    """
    publishers = {
        identity: (accepted[identity], refused[identity])
        for identity in sorted({*+accepted, *refused})
    }
    values = {
        **asdict(audit),
        "brokers": json.dumps(Counter(audit.brokers)),
        "publishers": json.dumps(publishers),
        "messages": len(audit.brokers),
        "rows": counts.rows,
        "duplicates": counts.duplicates,
        "dead_letters": counts.dead_letters.total(),
        "repeated_dead_letters": counts.repeated_dead_letters,
        "summarised_dead_letters": counts.summarised_dead_letters,
        "checks": counts.checks,
    }
    connection.execute(_INSERT, values)
