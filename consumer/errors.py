"""What can go wrong in the consumer, and what the caller does next.

    ConsumerError            one clear line, and the program ends
    ├── ClockNotSet          the host shows a time before this program was made
    ├── SourceUnreachable    a drain waited for these brokers in vain; the others were loaded
    ├── SinkAway             nothing was stored: try again later; in a drain it ends the program
    ├── SourceTaken          another process consumes, or reads this spool, under the same name
    ├── NoState              no daemon of that name has written its state
    └── EditorFailed         the editor was not found, or failed
    SessionLost              (schema.net.stomp_session) one connection is over: connect again; what
    │                        was not acked comes again
    └── SubscriptionRefused  because of one destination: go on without it

Other errors of the database are those of `sql.errors`, and end the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sam_pipeline.schema.errors import SamError
from sam_pipeline.schema.net.stomp_session import SessionLost
from sam_pipeline.schema.program.command import UNAVAILABLE, USAGE
from sam_pipeline.schema.times import format_time


class ConsumerError(SamError):
    """Base of what ends the program."""


class ClockNotSet(ConsumerError):
    """It may be set a little later: nothing is taken from the brokers until then."""

    exit_code = UNAVAILABLE

    def __init__(self, now: datetime) -> None:
        super().__init__(
            f"the clock of this host shows {format_time(now)}, before this program was made: every"
            " result would be refused as one from the future; set the clock (NTP), then start again"
        )


class SourceUnreachable(ConsumerError):
    """The messages of the other brokers were loaded."""

    exit_code = UNAVAILABLE

    def __init__(self, sources: Sequence[str], timeout_s: float) -> None:
        """`sources` has one text per broker, with the reason."""
        super().__init__(f"not reached within {timeout_s:g} s: {', '.join(sources)}")


class SinkAway(ConsumerError):
    """The database, or the directory to store to, is away or full."""

    def __init__(self, cause: SamError, needs_action: bool = False) -> None:
        """`needs_action`: it stays so until somebody acts."""
        super().__init__(str(cause))
        self.exit_code = cause.exit_code
        self.needs_action = needs_action


class SourceTaken(ConsumerError):
    """Two processes with one name would take each other's messages, or undo their locks."""

    exit_code = UNAVAILABLE


class NoState(ConsumerError):
    """It never ran, ran as another user, or its file can't be read."""

    exit_code = UNAVAILABLE


class EditorFailed(ConsumerError):
    """Nothing was changed."""

    exit_code = USAGE


class SubscriptionRefused(SessionLost):
    """The broker does not let us have `destination`; it closed the connection, or is about to."""

    def __init__(self, destination: str, reason: str) -> None:
        super().__init__(f"{destination}: {reason}")
        self.destination = destination
