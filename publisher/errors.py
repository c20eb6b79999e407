"""What can go wrong while publishing, by what the caller does next.

PublishError
├── BrokerUnavailable   try the next broker, then the spool
├── MessageRejected     this broker refuses this message: the others go on, this one is spooled
├── NoBrokerTookIt      some messages are nowhere but with the caller: keep them, send again
└── NoSuchInput         the input can't be read; nothing was sent
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schema.command import NO_INPUT, UNAVAILABLE
from schema.errors import BAD_DATA, SamError, SpoolError

if TYPE_CHECKING:
    from publisher.address import BrokerAddress
    from publisher.publication import Publication


class PublishError(SamError):
    """Base of all errors of this room."""


class BrokerUnavailable(PublishError):
    """The broker at `address` can't be used now, for `reason`."""

    exit_code = UNAVAILABLE

    def __init__(self, address: BrokerAddress, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason


class MessageRejected(PublishError):
    """The broker read the message at `position` of those it was given and refused it."""

    exit_code = BAD_DATA

    def __init__(self, address: BrokerAddress, position: int, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.position = position
        self.reason = reason


class NoBrokerTookIt(PublishError):
    """No broker and no spool has these `missing` messages; `publication` tells of the others."""

    exit_code = UNAVAILABLE

    def __init__(
        self, publication: Publication, missing: int, spool_error: SpoolError | None = None
    ) -> None:
        spool = str(spool_error) if spool_error else "the spool is off"
        asked = publication.failures or publication.rejections
        brokers = "no broker took them" if asked else "no broker is configured"
        kept = f"{missing} of {publication.total + missing} messages are kept nowhere"
        super().__init__(f"{kept}, send them again: {brokers}, and {spool}")
        self.publication = publication
        self.missing = missing
        self.exit_code = spool_error.exit_code if spool_error else UNAVAILABLE


class NoSuchInput(PublishError):
    """A file named on the command line can't be read."""

    exit_code = NO_INPUT

    def __init__(self, text: str, exit_code: int = NO_INPUT) -> None:
        super().__init__(text)
        self.exit_code = exit_code
