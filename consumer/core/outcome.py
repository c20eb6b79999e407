"""What became of one message, for a session that answers its sender."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

DATABASE, BROKER, SPOOL = "database", "broker", "spool"
"""Where a message may be stored."""
NOWHERE = ""
"""No broker of a relay takes the message: its sender keeps it."""


class UnloadedRecord(NamedTuple):
    """A record that could not be loaded; the `number` of a whole message is None.

    After many such records, one of a whole message stands for all of them.
    """

    number: int | None
    reason: str
    text: str


class MessageOutcome(NamedTuple):
    """A message that is stored, unless that is `NOWHERE`: then a letter has the reason.

    `rows` were stored, `duplicates` changed nothing, and the records in `letters` became dead
    letters, now or when the message arrived for the first time. A broker and a spool read no
    records.
    """

    stored: str
    rows: int = 0
    duplicates: int = 0
    letters: Sequence[UnloadedRecord] = ()
