"""What can go wrong in the consumer, and what the caller does next.

    ConsumerError            one clear line, and the program ends
    ├── SourceUnreachable    a drain waited for these brokers in vain; the others were loaded
    └── SourceTaken          another process consumes, or reads this spool, under the same name
    SessionLost              one connection is over: connect again; what was not acked comes again
    └── SubscriptionRefused  because of one destination: go on without it

The database's errors are those of `sql.errors`: `DatabaseAway` is waited for, others end the
program.
"""

from __future__ import annotations

from collections.abc import Sequence

from schema.command import UNAVAILABLE
from schema.errors import SamError


class ConsumerError(SamError):
    """Base of what ends the program."""


class SourceUnreachable(ConsumerError):
    """`sources` has one text per broker, with the reason."""

    exit_code = UNAVAILABLE

    def __init__(self, sources: Sequence[str], timeout_s: float) -> None:
        super().__init__(f"not reached within {timeout_s:g} s: {', '.join(sources)}")
        self.sources = tuple(sources)


class SourceTaken(ConsumerError):
    """Two processes with one name would take each other's messages, or undo their locks."""

    exit_code = UNAVAILABLE


class SessionLost(Exception):
    """The connection, or the attempt to make it, is over; the text says why."""


class SubscriptionRefused(SessionLost):
    """The broker does not let us have `destination`; it closed the connection, or is about to."""

    def __init__(self, destination: str, words: str) -> None:
        super().__init__(f"{destination}: {words}")
        self.destination = destination
