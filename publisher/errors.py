"""The errors of publishing, by what the caller does next.

PublishError
├── PublishUsage        the command line lacks an option
├── FifoError           the FIFO of passive results can't be used
├── BrokerUnavailable   try the next broker, then the spool
├── LoadTestFailed      the load test can't go on; its measurements are reported
├── MessageRejected     try another broker with this message; go on with the others here
└── NoBrokerTookIt      (in publication.py) some messages are lost: send them again

Terminated              by SIGTERM: wait for no broker, spool all records
"""

from __future__ import annotations

from sam_pipeline.schema.errors import BAD_DATA, CANNOT_CREATE, UNAVAILABLE, USAGE, SamError


class PublishError(SamError):
    """Base of all errors of the publisher."""


class PublishUsage(PublishError):
    """An option is missing that the configuration does not replace."""

    exit_code = USAGE


class FifoError(PublishError):
    """A FIFO can't be made or read."""

    def __init__(self, text: str, exit_code: int = CANNOT_CREATE) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class BrokerUnavailable(PublishError):
    """The broker can't be used now; `reason` says why."""

    exit_code = UNAVAILABLE

    def __init__(self, broker: object, reason: str) -> None:
        super().__init__(f"{broker}: {reason}")
        self.broker = str(broker)
        self.reason = reason


class MessageRejected(PublishError):
    """The broker read and refused the message at `position` of those it was sent.

    With `for_good`, no broker of its kind can ever take the message, and it was not sent.
    """

    exit_code = BAD_DATA

    def __init__(self, broker: object, position: int, reason: str, for_good: bool = False) -> None:
        super().__init__(f"{broker}: {reason}")
        self.broker = str(broker)
        self.position = position
        self.reason = reason
        self.for_good = for_good


class LoadTestFailed(PublishError):
    """A cell of a load test could not be measured."""

    exit_code = UNAVAILABLE


class Terminated(BaseException):
    """SIGTERM arrived while a broker was waited for."""
