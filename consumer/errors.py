"""The errors of the consumer, by what the caller does next.

    ConsumerError            the program ends with one line
    ├── SourceUnreachable    a drain did not reach these brokers; the others were loaded
    ├── SinkAway             nothing was stored: try again later; in a drain it ends the program
    ├── SourcesFull          nothing was stored: try again without some messages
    ├── BrokersAway          the cause of that, if no broker of a relay confirms
    ├── SourceTaken          another process uses the same name, or reads this spool with it
    ├── BrokerUnreachable    the subscription is still there: try again later
    ├── UnsubscribeRefused   the subscription is still there: the message says what to do
    ├── NoState              no daemon of that name has written its state
    └── EditorFailed         the editor was not found, or failed
    SessionLost              (schema.net.stomp.session) the connection is lost: connect again; the
    │                        broker redelivers messages that were not acked
    └── SubscriptionRefused  the broker refused one destination: continue without it

The errors of `sql.errors`, except DatabaseAway, end the program.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from ssl import SSLCertVerificationError

from sam_pipeline.schema.errors import ConfigError, SamError
from sam_pipeline.schema.net.channel import ProxyRefused
from sam_pipeline.schema.net.stomp.session import SessionLost
from sam_pipeline.schema.program.command import NO_PERMISSION, UNAVAILABLE, USAGE


class ConsumerError(SamError):
    """Base of the errors that end the program."""


class SourceUnreachable(ConsumerError):
    exit_code = UNAVAILABLE

    def __init__(self, sources: Sequence[str], timeout_s: float) -> None:
        """`sources` has one item per broker, with the reason."""
        super().__init__(f"not reached within {timeout_s:g} s: {', '.join(sources)}")


class BrokersAway(ConsumerError):
    """No broker of a relay confirms what it is sent; `losses` has one reason per broker."""

    exit_code = UNAVAILABLE

    def __init__(self, losses: Sequence[str]) -> None:
        super().__init__(f"no broker takes messages: {'; '.join(losses)}")


class SinkAway(ConsumerError):
    """The database, or the directory or brokers of a relay, can't be used; or a disk is full."""

    def __init__(self, cause: SamError, needs_action: bool = False) -> None:
        """`needs_action`: it stays away until someone fixes the problem."""
        super().__init__(str(cause))
        self.exit_code = cause.exit_code
        self.needs_action = needs_action


class SourcesFull(ConsumerError):
    """Messages that must not be acked, for lack of room for their dead letters."""

    def __init__(
        self, cause: SamError, sources: Collection[str], messages: Collection[int]
    ) -> None:
        """`sources`: the brokers to leave alone; `messages`: the id() of each message at fault."""
        super().__init__(str(cause))
        self.sources = sources
        self.messages = messages


class SourceTaken(ConsumerError):
    """Another process uses the name: both would share messages, or remove each other's locks."""

    exit_code = UNAVAILABLE


class BrokerUnreachable(ConsumerError):
    """A subscription can't be deleted, because its broker can't be reached."""

    exit_code = UNAVAILABLE


class UnsubscribeRefused(ConsumerError):
    """A subscription is not deleted: it is in use, or the broker does not permit it."""

    exit_code = NO_PERMISSION


class NoState(ConsumerError):
    """The daemon never ran, ran as another user, or its state file can't be read."""

    exit_code = UNAVAILABLE


class EditorFailed(ConsumerError):
    exit_code = USAGE


class SubscriptionRefused(SessionLost):
    """The broker refuses a destination; it has closed the connection, or is about to."""

    def __init__(self, destination: str, reason: str) -> None:
        super().__init__(f"{destination}: {reason}")
        self.destination = destination


LOGIN_REFUSED = re.compile(
    r"password is invalid|unable to validate user|security error|access refused|not authori[sz]ed",
    re.IGNORECASE,
)
"""How ActiveMQ, Artemis and RabbitMQ refuse a login."""


def needs_action(loss: SessionLost) -> bool:
    """Whether someone must act: on a login, a certificate, a proxy or the configuration."""
    if isinstance(loss.__cause__, (ConfigError, SSLCertVerificationError, ProxyRefused)):
        return True
    return loss.by_error and LOGIN_REFUSED.search(str(loss)) is not None
