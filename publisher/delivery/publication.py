"""Give messages to the first broker that takes them; spool what none took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from sam_pipeline.publisher.errors import BrokerUnavailable, MessageRejected, PublishError
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.program.command import TRY_LATER, UNAVAILABLE

if TYPE_CHECKING:  # what needs them imports them: a site may have a spool and no brokers
    from typing import Callable

    from sam_pipeline.publisher.brokers.address import BrokerAddress
    from sam_pipeline.publisher.brokers.transport import Transport
    from sam_pipeline.publisher.delivery.memory import Memory
    from sam_pipeline.publisher.delivery.route import Route, Turn
    from sam_pipeline.publisher.settings.config import PublisherConfig

BATCH = 1000
"""Messages handed over in one call: while a broker confirms, it gets new shares of the time."""

logger = lazy_logger(__name__)


class Receipt(NamedTuple):
    """The broker at `address` has the message and will not lose it."""

    message: Message
    address: BrokerAddress


class Rejection(NamedTuple):
    """No broker took the message, and the one at `address` refused it; the spool has it now."""

    message: Message
    address: BrokerAddress
    reason: str


class Publication(NamedTuple):
    """What became of the messages of one call."""

    receipts: Sequence[Receipt] = ()
    spooled: Sequence[Message] = ()
    rejections: Sequence[Rejection] = ()
    failures: Sequence[BrokerUnavailable] = ()
    """One for each broker that was asked in vain, or left out because it failed just before."""
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
        kept = f"{self.lost} of {self.total} messages are kept nowhere, send them again"
        return f"{kept}: {self.brokers}, and {self.spool}"


def publish(messages: Sequence[Message], config: PublisherConfig) -> Publication:
    """Give the messages to the brokers in their order, all within `config.timeout_s`.

    On return each message is confirmed by a broker or on disk in the spool. What is left of the
    time goes to what earlier calls left in the spool.

    Raises:
        NoBrokerTookIt: some are neither; its `publication` has the others.
    """
    deadline = Deadline.after(config.timeout_s)
    with Courier(config) as courier:
        publication = courier.deliver(messages, deadline)
        return publication._replace(drained=courier.drain(deadline))


class Courier:
    """Delivers batch after batch over one connection, to the broker that took the last one.

    Whatever breaks, each message keeps its id, and what was confirmed is not sent again.
    """

    def __init__(
        self, config: PublisherConfig, meanwhile: Callable[[], bool] | None = None
    ) -> None:
        """While a broker is at work, `meanwhile` is called until it says that nothing is left."""
        self._config = config
        self._meanwhile = meanwhile
        self._memory: Memory | None = None
        self._turn: Turn | None = None
        self._transport: Transport | None = None

    def __enter__(self) -> Courier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def deliver(self, messages: Iterable[Message], deadline: Deadline) -> Publication:
        """Have each message confirmed by a broker, or on disk in the spool.

        Raises:
            NoBrokerTookIt: some are neither.
        """
        progress = _Progress([self._config.addressed(message) for message in messages])
        failures: list[BrokerUnavailable] = []
        if self._config.brokers:
            with self._route(deadline) as route:
                trouble = self._publish(progress, route, deadline)
            failures = route.failures
        else:
            trouble = progress.spool(self._config)
        publication = progress.publication(failures)
        _log_rejections(publication.rejections)
        missing = list(progress.missing.values())
        if missing:
            raise NoBrokerTookIt(publication, missing, self._config, trouble) from trouble
        return publication

    def drain(self, deadline: Deadline) -> int:
        """How many spooled messages of earlier calls the same broker took in what is left."""
        if self._transport is None or self._turn is None:
            return 0
        from sam_pipeline.publisher.delivery.drain import drain_in_passing

        return drain_in_passing(self._transport, self._turn.address, self._config, deadline)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._transport = None

    def _route(self, deadline: Deadline) -> Route:
        from sam_pipeline.publisher.delivery.memory import Memory
        from sam_pipeline.publisher.delivery.route import Route

        if self._memory is None:
            self._memory = Memory(self._config.state, self._config.broker_list)
        ask_all = self._config.spool is None or self._config.require_broker
        return Route(self._config, self._memory, lambda: deadline, ask_all=ask_all)

    def _publish(self, progress: _Progress, route: Route, deadline: Deadline) -> SpoolError | None:
        """To the brokers, else the spool, else the brokers that were left out for its sake."""
        self._send_as_before(progress, deadline)
        self._hand_over(progress, route.turns(), route, deadline)
        trouble = progress.spool(self._config)
        if trouble:
            self._hand_over(progress, route.left_out(), route, deadline)
        return trouble

    def _send_as_before(self, progress: _Progress, deadline: Deadline) -> None:
        """Over the connection that is open, if there is one."""
        if self._transport is None or self._turn is None:
            return
        try:
            self._send_all(progress, self._turn, deadline)
        except BrokerUnavailable as failure:  # it may have been idle for long: no reason to rest
            logger.info("connection ended: %s", failure)
            self.close()

    def _hand_over(
        self, progress: _Progress, turns: Iterator[Turn], route: Route, deadline: Deadline
    ) -> None:
        """To one broker after the other: each gets what none before it took."""
        while progress.missing:
            turn = next(turns, None)
            if turn is None:
                return
            if turn.address == self._connected_to:
                continue  # it refused what is left
            if deadline.expired:
                route.no_time_for(turn.address)
                continue
            progress.offer_missing()
            try:
                self._connect(turn, deadline)
                self._send_all(progress, turn, deadline)
            except BrokerUnavailable as failure:
                self.close()
                route.failed(turn.address, failure)
            else:
                route.worked(turn.address)

    @property
    def _connected_to(self) -> BrokerAddress | None:
        return self._turn.address if self._transport and self._turn else None

    def _connect(self, turn: Turn, deadline: Deadline) -> None:
        from sam_pipeline.publisher.brokers.transport import kind_of

        self.close()
        kind = kind_of(turn.address.broker)
        self._transport = kind.connect(turn.address, self._config, deadline.share(turn.of))
        self._turn = turn
        if self._meanwhile:
            self._transport.meanwhile = self._meanwhile

    def _send_all(self, progress: _Progress, turn: Turn, deadline: Deadline) -> None:
        from sam_pipeline.publisher.brokers.transport import outcomes

        assert self._transport is not None, "connected"
        while progress.pending:
            positions = list(islice(progress.pending, BATCH))
            batch = [progress.pending[position] for position in positions]
            for at, rejection in outcomes(self._transport, batch, deadline.share(turn.of)):
                progress.settle(positions[at], turn.address, rejection)


class _Progress:
    """Where each message of a call is by now, by its position."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.missing = dict(enumerate(messages))
        """What neither a broker nor the spool has."""
        self.pending = dict(self.missing)
        """What the broker whose turn it is has not answered for."""
        self._refused: dict[int, Rejection] = {}
        self._receipts: list[Receipt] = []
        self._spooled: list[Message] = []

    def offer_missing(self) -> None:
        """The next broker may take what the one before it refused."""
        if len(self.pending) < len(self.missing):
            self.pending = dict(self.missing)

    def settle(
        self, position: int, address: BrokerAddress, rejection: MessageRejected | None
    ) -> None:
        message = self.pending.pop(position)
        if rejection is None:
            del self.missing[position]
            self._receipts.append(Receipt(message, address))
            if self._refused:
                self._refused.pop(position, None)
        else:
            self._refused[position] = Rejection(message, address, rejection.reason)

    def spool(self, config: PublisherConfig) -> SpoolError | None:
        """Keep what no broker has, as far as the spool takes it."""
        if config.spool is None or not self.missing:
            return None
        from sam_pipeline.publisher.spool.bounded import SpoolRoom  # most calls reach a broker

        room = SpoolRoom(config.spool, config)
        positions = list(self.missing)
        try:
            kept = room.add_all(list(self.missing.values()))
            for position, message in zip(positions, kept):
                del self.missing[position]
                self._spooled.append(message)
        except SpoolError as error:
            return error
        finally:
            self.offer_missing()
        return None

    def publication(self, failures: Sequence[BrokerUnavailable]) -> Publication:
        return Publication(
            tuple(self._receipts),
            tuple(self._spooled),
            tuple(self._refused.values()),
            tuple(failures),
        )


def _log_rejections(rejections: Sequence[Rejection]) -> None:
    counts: dict[tuple[str, str], int] = {}
    for item in rejections:
        key = (str(item.address), item.reason)
        counts[key] = counts.get(key, 0) + 1
    for (address, reason), count in counts.items():
        logger.error("messages rejected: %s by %s: %s", count, address, reason)
