"""The audit of loading: one row per batch, written in the transaction of the batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, text

# The database fills in the time and the login.
_INSERT = text("""
    INSERT INTO loaded_batch (
        consumer, host, process_id, brokers, messages, rows, dead_letters, repeated_dead_letters,
        summarised_dead_letters, checks
    )
    VALUES (
        :consumer, :host, :process_id, :brokers, :messages, :rows, :dead_letters,
        :repeated_dead_letters, :summarised_dead_letters, :checks
    )
""")


@dataclass(frozen=True)
class Audit:
    """The process that loads a batch, and the number of messages from each broker (or file)."""

    consumer: str
    host: str
    process_id: int
    brokers: Mapping[str, int]


def write_audit(connection: Connection, audit: Audit, **counts: int) -> None:
    """Insert the row in the caller's transaction: it exists if and only if the batch does.

    `counts`: messages, rows, dead_letters, repeated_dead_letters, summarised_dead_letters and
    checks.
    """
    brokers = json.dumps(dict(audit.brokers))
    connection.execute(_INSERT, {**asdict(audit), **counts, "brokers": brokers})
