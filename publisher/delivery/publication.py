"""Give each message to the first broker that takes it; spool what none took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from sam_pipeline.publisher.errors import BrokerUnavailable, MessageRejected, PublishError
from sam_pipeline.publisher.spool.bounded import BoundedSpool
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.program.command import TRY_LATER, UNAVAILABLE

if TYPE_CHECKING:  # imported where brokers are configured; without any that saves 5 % of a start
    from typing import Callable

    from sam_pipeline.publisher.brokers.address import BrokerAddress
    from sam_pipeline.publisher.brokers.transport import Transport
    from sam_pipeline.publisher.delivery.memory import Memory
    from sam_pipeline.publisher.delivery.route import BrokerCandidate, Route
    from sam_pipeline.publisher.settings.config import PublisherConfig

BATCH = 1000
"""Messages passed to a broker at once; each batch gets a new share of the remaining time."""

logger = lazy_logger(__name__)


class Receipt(NamedTuple):
    """The broker at `address` has the message and will not lose it."""

    message: Message
    address: BrokerAddress


class Rejection(NamedTuple):
    """No broker took the message; the one at `address` refused it. It is in the spool."""

    message: Message
    address: BrokerAddress
    reason: str


class Publication(NamedTuple):
    """The outcome of a call: where its messages went."""

    receipts: Sequence[Receipt] = ()
    spooled: Sequence[Message] = ()
    rejections: Sequence[Rejection] = ()
    failures: Sequence[BrokerUnavailable] = ()
    """One for each broker that failed, or was left out because it failed recently."""
    drained: int = 0
    """The number of spooled messages of earlier calls that were sent."""

    @property
    def total(self) -> int:
        """The number of messages that a broker or the spool has."""
        return len(self.receipts) + len(self.spooled)


class NoBrokerTookIt(PublishError):
    """The `missing` messages were neither published nor spooled; `publication` has the others."""

    exit_code = UNAVAILABLE

    def __init__(
        self,
        publication: Publication,
        missing: Sequence[Message],
        config: PublisherConfig,
        spool_error: SpoolError | None = None,
    ) -> None:
        self.publication = publication
        self.missing = tuple(missing)
        asked = publication.failures or publication.rejections
        self.brokers = "no broker took them" if asked else "no broker is configured"
        self.spool = str(spool_error) if spool_error else "the spool is off"
        self.lost = len(missing)
        self.total = len(missing) + publication.total
        if spool_error:
            self.exit_code = spool_error.exit_code
        elif config.require_broker:
            self.exit_code = TRY_LATER

    def __str__(self) -> str:
        lost = f"{self.lost} of {self.total} messages were neither published nor spooled"
        return f"{lost}, send them again: {self.brokers}, and {self.spool}"


def publish(messages: Sequence[Message], config: PublisherConfig) -> Publication:
    """Publish the messages to the configured brokers, all within `config.timeout_s`.

    On return each message is confirmed by a broker or on disk in the spool. The remaining time is
    used to send spooled messages of earlier calls.

    Raises:
        NoBrokerTookIt: some messages are neither; its `publication` has the others.
    """
    deadline = Deadline.after(config.timeout_s)
    with Courier(config) as courier:
        publication = courier.deliver(messages, deadline)
        return publication._replace(drained=courier.drain(deadline))


class Courier:
    """Delivers batch after batch over one connection, to the broker that took the last batch.

    After a failure each message keeps its id, and a confirmed message is not sent again.
    """

    def __init__(
        self, config: PublisherConfig, meanwhile: Callable[[], bool] | None = None
    ) -> None:
        """While a broker is at work, `meanwhile` is called until it returns False."""
        self._config = config
        self._meanwhile = meanwhile
        self._memory: Memory | None = None
        self._candidate: BrokerCandidate | None = None
        self._transport: Transport | None = None

    def __enter__(self) -> Courier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def deliver(self, messages: Iterable[Message], deadline: Deadline) -> Publication:
        """Return once each message is confirmed by a broker or on disk in the spool.

        Raises:
            NoBrokerTookIt: some messages are neither.
        """
        batch = _Batch([self._config.addressed(message) for message in messages])
        failures: list[BrokerUnavailable] = []
        if self._config.brokers:
            from sam_pipeline.publisher.delivery.memory import Memory
            from sam_pipeline.publisher.delivery.route import Route

            if self._memory is None:
                self._memory = Memory(self._config.state, self._config.broker_list)
            ask_all = self._config.spool is None or self._config.require_broker
            with Route(self._config, self._memory, lambda: deadline, ask_all=ask_all) as route:
                if self._transport is not None and self._candidate is not None:
                    try:
                        self._send_all(batch, self._candidate, deadline)
                    except BrokerUnavailable as failure:
                        # Perhaps after a long idle time: it need not rest for that.
                        logger.info("connection ended: %s", failure)
                        self.close()
                self._hand_over(batch, route.candidates(), route, deadline)
                spool_error = batch.spool(self._config)
                if spool_error:  # brokers were left out only because there is a spool
                    self._hand_over(batch, route.left_out(), route, deadline)
            failures = route.failures
        else:
            spool_error = batch.spool(self._config)
        rejections = tuple(batch.refused.values())
        receipts, spooled = tuple(batch.receipts), tuple(batch.spooled)
        publication = Publication(receipts, spooled, rejections, tuple(failures))
        counts: dict[tuple[str, str], int] = {}
        for _, address, reason in rejections:
            counts[str(address), reason] = counts.get((str(address), reason), 0) + 1
        for (broker, reason), count in counts.items():
            logger.error("%s messages rejected by %s: %s", count, broker, reason)
        if batch.missing:
            missing = list(batch.missing.values())
            raise NoBrokerTookIt(publication, missing, self._config, spool_error) from spool_error
        return publication

    def drain(self, deadline: Deadline) -> int:
        """Send spooled messages of earlier calls to the same broker; return their number."""
        if self._transport is None or self._candidate is None:
            return 0
        from sam_pipeline.publisher.delivery.drain import drain_in_passing

        return drain_in_passing(self._transport, self._candidate.address, self._config, deadline)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._transport = None

    def _hand_over(
        self, batch: _Batch, candidates: Iterator[BrokerCandidate], route: Route, deadline: Deadline
    ) -> None:
        """Offer the missing messages to one candidate after the other."""
        from sam_pipeline.publisher.brokers.transport import kind_of

        while batch.missing:
            candidate = next(candidates, None)
            if candidate is None:
                return
            address, sharing = candidate
            if self._transport and self._candidate and address == self._candidate.address:
                continue  # it refused the missing messages
            if deadline.expired:
                route.no_time_for(address)
                continue
            batch.offer_missing()
            try:
                self.close()
                kind = kind_of(address.broker)
                self._transport = kind.connect(address, self._config, deadline.share(sharing))
                self._candidate = candidate
                if self._meanwhile:
                    self._transport.meanwhile = self._meanwhile
                self._send_all(batch, candidate, deadline)
            except BrokerUnavailable as failure:
                self.close()
                route.failed(address, failure)
            else:
                route.worked(address)

    def _send_all(self, batch: _Batch, candidate: BrokerCandidate, deadline: Deadline) -> None:
        from sam_pipeline.publisher.brokers.transport import outcomes

        assert self._transport is not None, "connected"
        address, sharing = candidate
        while batch.pending:
            positions = list(islice(batch.pending, BATCH))
            messages = [batch.pending[position] for position in positions]
            for at, rejection in outcomes(self._transport, messages, deadline.share(sharing)):
                batch.settle(positions[at], address, rejection)


class _Batch:
    """The messages of one call by position, and the outcome of each."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.missing = dict(enumerate(messages))
        """Messages that neither a broker nor the spool has."""
        self.pending = dict(self.missing)
        """Messages that the current broker has neither confirmed nor refused."""
        self.refused: dict[int, Rejection] = {}
        self.receipts: list[Receipt] = []
        self.spooled: list[Message] = []

    def offer_missing(self) -> None:
        """Start over for the next broker, which may take what the last one refused."""
        if len(self.pending) < len(self.missing):
            self.pending = dict(self.missing)

    def settle(
        self, position: int, address: BrokerAddress, rejection: MessageRejected | None
    ) -> None:
        """Record that the broker confirmed the message, or refused it."""
        message = self.pending.pop(position)
        if rejection is None:
            del self.missing[position]
            self.receipts.append(Receipt(message, address))
            if self.refused:
                self.refused.pop(position, None)
        else:
            self.refused[position] = Rejection(message, address, rejection.reason)

    def spool(self, config: PublisherConfig) -> SpoolError | None:
        """Store the missing messages, as many as fit; return the error if some do not."""
        if config.spool is None or not self.missing:
            return None
        positions = list(self.missing)
        try:
            stored = BoundedSpool(config.spool, config).add_all(list(self.missing.values()))
            for position, message in zip(positions, stored):
                del self.missing[position]
                self.spooled.append(message)
        except SpoolError as error:
            return error
        finally:
            self.offer_missing()
        return None
