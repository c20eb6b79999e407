"""Give messages to the first broker that takes them; spool what none took."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice

from publisher.address import BrokerAddress, addresses_of
from publisher.config import PublisherConfig
from publisher.deadline import Deadline
from publisher.drain import drain_in_passing
from publisher.errors import BrokerUnavailable, MessageRejected, PublishError
from publisher.transport import Transport, kind_of, outcomes
from schema.broker import Broker
from schema.command import UNAVAILABLE
from schema.errors import SpoolError
from schema.message import Message
from schema.spool import DirectoryQueue

BATCH = 1000
"""Messages handed over in one call: while a broker confirms, it gets new shares of the time."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Receipt:
    """The broker at `address` has the message and will not lose it."""

    message: Message
    address: BrokerAddress


@dataclass(frozen=True)
class Rejection:
    """The broker at `address` refused the message, which is in the spool now."""

    message: Message
    address: BrokerAddress
    reason: str


@dataclass(frozen=True)
class Publication:
    """What became of the messages of one call."""

    receipts: tuple[Receipt, ...] = ()
    spooled: tuple[Message, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    failures: tuple[BrokerUnavailable, ...] = ()
    drained: int = 0
    """Messages of earlier calls that left the spool."""

    @property
    def total(self) -> int:
        """Messages that a broker or the spool has."""
        return len(self.receipts) + len(self.spooled)


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


def publish(messages: Sequence[Message], config: PublisherConfig) -> Publication:
    """Give the messages to the brokers in their order, all within `config.timeout_s`.

    On return each message is confirmed by a broker or on disk in the spool.

    Raises:
        NoBrokerTookIt: some are neither; its `publication` has the others.
    """
    progress = _Progress([config.addressed(message) for message in messages])
    if messages:
        _hand_over(progress, config)
    _log_rejections(progress.rejections)
    return _spool(progress, config)


@dataclass
class _Progress:
    messages: Sequence[Message]
    receipts: list[Receipt] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    failures: list[BrokerUnavailable] = field(default_factory=list)
    drained: int = 0

    def __post_init__(self) -> None:
        self.pending = dict(enumerate(self.messages))

    def settle(
        self, position: int, address: BrokerAddress, rejection: MessageRejected | None
    ) -> None:
        message = self.pending.pop(position)
        if rejection is None:
            self.receipts.append(Receipt(message, address))
        else:
            self.rejections.append(Rejection(message, address, rejection.reason))

    def fail(self, failure: BrokerUnavailable) -> None:
        logger.warning("broker unavailable: %s", failure)
        self.failures.append(failure)

    def publication(self, spooled: Sequence[Message] = ()) -> Publication:
        return Publication(
            receipts=tuple(self.receipts),
            spooled=tuple(spooled),
            rejections=tuple(self.rejections),
            failures=tuple(self.failures),
            drained=self.drained,
        )


def _hand_over(progress: _Progress, config: PublisherConfig) -> None:
    """Until one broker after the other has all that is pending, or the time is up."""
    deadline = Deadline.after(config.timeout_s)
    for address, turns in _turns(config.broker_list, deadline, progress):
        try:
            kind = kind_of(address.broker)
            with closing(kind.connect(address, config, deadline.share(turns))) as transport:
                _send_all(progress, transport, address, deadline, turns)
                progress.drained = drain_in_passing(transport, address, config, deadline)
            return
        except BrokerUnavailable as failure:
            progress.fail(failure)


def _turns(
    brokers: Sequence[Broker], deadline: Deadline, progress: _Progress
) -> Iterator[tuple[BrokerAddress, int]]:
    """Each address once, and how many brokers share what is left of the deadline."""
    seen: set[tuple[str, str, int, str]] = set()
    for position, broker in enumerate(brokers):
        later = len(brokers) - position - 1
        try:
            found = addresses_of(broker, deadline.share(later + 1))
        except BrokerUnavailable as failure:
            progress.fail(failure)
            continue
        fresh = [address for address in found if address.identity not in seen]
        seen.update(address.identity for address in fresh)
        for at, address in enumerate(fresh):
            yield address, later + len(fresh) - at


def _send_all(
    progress: _Progress,
    transport: Transport,
    address: BrokerAddress,
    deadline: Deadline,
    turns: int,
) -> None:
    while progress.pending:
        positions = list(islice(progress.pending, BATCH))
        batch = [progress.pending[position] for position in positions]
        for at, rejection in outcomes(transport, batch, deadline.share(turns)):
            progress.settle(positions[at], address, rejection)


def _log_rejections(rejections: Sequence[Rejection]) -> None:
    counts = Counter((str(item.address), item.reason) for item in rejections)
    for (address, reason), count in counts.items():
        logger.error("messages rejected: %s by %s: %s", count, address, reason)


def _spool(progress: _Progress, config: PublisherConfig) -> Publication:
    """Keep what no broker has."""
    kept = [rejection.message for rejection in progress.rejections] + [*progress.pending.values()]
    spooled: list[Message] = []
    if config.spool is None:
        if kept:
            raise NoBrokerTookIt(progress.publication(), len(kept))
        return progress.publication()
    queue = DirectoryQueue(config.spool)
    try:
        for message in kept:
            queue.add(message)
            spooled.append(message)
    except SpoolError as error:
        missing = len(kept) - len(spooled)
        raise NoBrokerTookIt(progress.publication(spooled), missing, error) from error
    return progress.publication(spooled)
