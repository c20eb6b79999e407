"""Publish messages as configured: each goes to the first broker that takes it, else to the spool.

Each copy, a second set of brokers, has its own connection, memory of brokers and spool, and a
thread that sends until the deadline. Signals reach only the main thread, which then spools the
messages that a thread has not delivered: a broker that hangs delays no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from sam_pipeline.publisher.brokers.transport import Transport, kind_of, outcomes
from sam_pipeline.publisher.delivery.outgoing import (
    addressed_to,
    messages_of_copy,
    outgoing,
    require_deliverable,
)
from sam_pipeline.publisher.errors import BrokerUnavailable, PublishError, Terminated
from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.publisher.spool.bounded import BoundedSpool
from sam_pipeline.schema.errors import TRY_LATER, UNAVAILABLE, SpoolError
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker import Target
from sam_pipeline.schema.net.deadline import BackgroundCall, Deadline
from sam_pipeline.schema.program.wording import plural

if TYPE_CHECKING:
    from sam_pipeline.publisher.delivery.route import BrokerCandidate, Memory, Route
    from sam_pipeline.publisher.delivery.termination import Termination

BATCH = 1000
"""The most messages in one call of a transport; each call gets a new share of the time."""

logger = lazy_logger(__name__)


class Receipt(NamedTuple):
    """The broker at `address` has the message and will not lose it."""

    message: Message
    address: Target


class Rejection(NamedTuple):
    """No broker took the message; the one at `address` refused it. It is in the spool."""

    message: Message
    address: Target
    reason: str
    for_good: bool = False
    """No broker of this kind can ever take it."""


class Publication(NamedTuple):
    """The outcome of delivering messages: where each of them went."""

    receipts: Sequence[Receipt] = ()
    spooled: Sequence[Message] = ()
    rejections: Sequence[Rejection] = ()
    failures: Sequence[BrokerUnavailable] = ()
    """One for each broker that failed, or was left out because it failed recently."""
    drained: int = 0
    """The number of spooled messages of earlier calls that were sent."""
    copies: Sequence[tuple[str, Publication]] = ()
    """The outcome of each copy, with its name."""

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
        any_tried = publication.failures or publication.rejections
        self.brokers = "no broker took them" if any_tried else "no broker is configured"
        self.spool = str(spool_error) if spool_error else "the spool is off"
        self.lost = len(missing)
        self.total = len(missing) + publication.total
        self.copy_name = config.copy_name
        """The copy that lost them; empty for the brokers of the section."""
        self.others: Sequence[NoBrokerTookIt] = ()
        """The losses of further copies."""
        if spool_error:
            self.exit_code = spool_error.exit_code
        elif config.require_broker:
            self.exit_code = TRY_LATER

    def __str__(self) -> str:
        lost = f"{self.lost} of {self.total} messages were neither published nor spooled"
        copy = f"copy {self.copy_name}: " if self.copy_name else ""
        loss = f"{copy}{lost}, send them again: {self.brokers}, and {self.spool}"
        return "; ".join([loss, *map(str, self.others)])


class BrokerSet:
    """The brokers of the section or of a copy, over the connection that worked last."""

    def __init__(
        self,
        config: PublisherConfig,
        meanwhile: Callable[[], bool] | None = None,
        termination: Termination | None = None,
    ) -> None:
        self._config = config
        self._meanwhile = meanwhile
        self._termination = termination if config.spool else None
        self._memory: Memory | None = None
        self._connection: tuple[Transport, BrokerCandidate] | None = None

    def batch_of(self, messages: Iterable[Message]) -> MessageBatch:
        """The messages as they are sent; raises ConfigError if they can't be signed."""
        return MessageBatch([outgoing(message, self._config) for message in messages])

    def offer(self, batch: MessageBatch, deadline: Deadline) -> None:
        """Send the messages to one broker after the other, until none is missing."""
        config, termination = self._config, self._termination
        if not config.targets or (termination and termination.received):
            return
        from sam_pipeline.publisher.delivery.route import Memory, Route

        if self._memory is None:
            self._memory = Memory(config.state, config.targets)
        ask_all = config.spool is None or config.require_broker
        batch.route = Route(self._memory, config.order, deadline, ask_all=ask_all)
        with batch.route as route:
            try:
                if termination:
                    termination.interrupts = True
                if self._connection:
                    try:
                        batch.send(*self._connection, config, deadline)
                    except BrokerUnavailable as failure:
                        # Perhaps it was idle for too long: the broker may be tried again.
                        fields = {"broker": failure.broker}
                        logger.info("connection ended: %s", failure, extra=fields)
                        self.close()
                self._try_brokers(batch, route.candidates(), route, deadline)
                if termination:
                    termination.interrupts = False
            except (KeyboardInterrupt, Terminated) as interrupt:
                self._connection = None  # not closed: a DISCONNECT could follow half a frame
                if isinstance(interrupt, KeyboardInterrupt):
                    raise
        batch.failures = route.failures

    def settle(self, batch: MessageBatch, deadline: Deadline) -> Publication:
        """Spool the missing messages, and return where each one is.

        Raises:
            NoBrokerTookIt: some messages were lost.
        """
        spool_error = batch.spool(self._config)
        if spool_error and batch.route:  # brokers were left out only because there is a spool
            with batch.route as route:
                self._try_brokers(batch, route.left_out(), route, deadline)
            batch.failures = route.failures
        failures = batch.failures
        # A broker of another kind may take it when it is back.
        rejections = list(batch.refused.values())
        if failures:
            rejections = [rejection for rejection in rejections if not rejection.for_good]
        receipts, spooled = tuple(batch.receipts), tuple(batch.spooled)
        publication = Publication(receipts, spooled, tuple(rejections), tuple(failures))
        counts = Counter[tuple[str, str]]()
        for rejection in rejections:
            counts[str(rejection.address), rejection.reason] += 1
        for (broker, reason), count in counts.items():
            counted = plural(count, "message")
            fields = {"broker": broker}
            logger.error("%s rejected by %s: %s", counted, broker, reason, extra=fields)
        if batch.missing:
            missing = list(batch.missing.values())
            raise NoBrokerTookIt(publication, missing, self._config, spool_error) from spool_error
        return publication

    def drain(self, deadline: Deadline) -> int:
        """Send spooled messages of earlier calls to the same broker; return their number."""
        if self._connection is None or not self._config.drain:
            return 0
        from sam_pipeline.publisher.delivery.drain import drain_in_passing

        transport, candidate = self._connection
        return drain_in_passing(transport, candidate.target, self._config, deadline)

    def close(self) -> None:
        if self._connection:
            self._connection[0].close()
        self._connection = None

    def _try_brokers(
        self,
        batch: MessageBatch,
        candidates: Iterator[BrokerCandidate],
        route: Route,
        deadline: Deadline,
    ) -> None:
        """Send the missing messages to one candidate after the other until none is missing."""
        while batch.missing:
            candidate = next(candidates, None)
            if candidate is None:
                return
            target = candidate.target
            if self._connection and target == self._connection[1].target:
                continue  # it refused the missing messages
            share = deadline.share(candidate.sharing)
            if share.expired:
                route.no_time_for(target)
                continue
            batch.start_over()
            try:
                self.close()
                transport = kind_of(target.broker)(target, share)
                self._connection = transport, candidate
                if self._meanwhile:
                    transport.meanwhile = self._meanwhile
                batch.send(transport, candidate, self._config, deadline)
            except BrokerUnavailable as failure:
                self.close()
                route.failed(target, failure)
            else:
                route.worked(target)


class MessageBatch:
    """The messages of one call by position, and the outcome of each."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.missing = dict(enumerate(messages))
        """Messages that neither a broker nor the spool has."""
        self.pending = dict(self.missing)
        """Messages that the current broker has neither confirmed nor refused."""
        self.refused: dict[int, Rejection] = {}
        self.receipts: list[Receipt] = []
        self.spooled: list[Message] = []
        self.route: Route | None = None
        """The brokers to which they were offered."""
        self.failures: Sequence[BrokerUnavailable] = ()
        """One for each of these brokers that failed or was left out."""

    def snapshot(self) -> MessageBatch:
        """The state of a batch that another thread may still send, without refused messages."""
        taken = MessageBatch(())
        taken.missing = dict(self.missing)
        taken.receipts = list(self.receipts)
        confirmed = {receipt.message.message_id for receipt in taken.receipts}
        for position, message in list(taken.missing.items()):
            if message.message_id in confirmed:  # since then
                del taken.missing[position]
        return taken

    def start_over(self) -> None:
        """Make all missing messages pending: the next broker may take what the last one refused."""
        if len(self.pending) < len(self.missing):
            self.pending = dict(self.missing)

    def send(
        self,
        transport: Transport,
        candidate: BrokerCandidate,
        config: PublisherConfig,
        deadline: Deadline,
    ) -> None:
        """Send the pending messages; record which ones the broker confirmed or refused."""
        target, sharing = candidate
        while self.pending:
            positions = list(islice(self.pending, BATCH))
            pending = [self.pending[position] for position in positions]
            messages = addressed_to(target, pending, config) if target.destinations else pending
            for index, rejection in outcomes(transport, messages, deadline.share(sharing)):
                position = positions[index]
                message = self.pending.pop(position)
                if rejection:
                    self.refused[position] = Rejection(
                        message, target, rejection.reason, rejection.for_good
                    )
                    continue
                self.receipts.append(Receipt(messages[index], target))
                del self.missing[position]  # last: see `snapshot`
                if self.refused:
                    self.refused.pop(position, None)

    def spool(self, config: PublisherConfig) -> SpoolError | None:
        """Store the missing messages, as many as fit; return the error if some do not."""
        if config.spool is None or not self.missing:
            return None
        positions = list(self.missing)
        try:
            spool = BoundedSpool(config.spool, config.spool_limits, config.shares_spool)
            stored = spool.add_all(list(self.missing.values()))
            for position, message in zip(positions, stored):
                del self.missing[position]
                self.spooled.append(message)
        except SpoolError as error:
            return error
        finally:
            self.start_over()
        return None


def publish(messages: Sequence[Message], config: PublisherConfig) -> Publication:
    """Publish the messages to the configured brokers within `config.timeout_s`.

    On return each message is confirmed by a broker or on disk in the spool, for the section and for
    each copy. Spooled messages of earlier calls are also sent, in at most a fifth of that time.

    Raises:
        MessageRefused: no consumer could receive one of them, or it is too large. Nothing was sent.
        NoBrokerTookIt: some messages were lost; its `publication` has the others.
    """
    for message in messages:
        require_deliverable(message, config)
    deadline = Deadline.after(config.timeout_s)
    with Courier(config) as courier:
        publication = courier.deliver(messages, deadline)
        return publication._replace(drained=courier.drain(deadline))


GRACE_S = 1.0
"""How long after the deadline a thread may take to notice it, and to close a connection."""


class Courier:
    """Delivers messages, call after call, to the brokers of the section and of each copy.

    After a failure only unconfirmed messages are sent again, with the same ids.
    """

    def __init__(
        self,
        config: PublisherConfig,
        meanwhile: Callable[[], bool] | None = None,
        termination: Termination | None = None,
    ) -> None:
        """While a broker is at work, `meanwhile` is called until it returns False.

        After a `termination` no broker is waited for, if there is a spool.
        """
        self._config = config
        self._termination = termination
        self._main = BrokerSet(config, meanwhile, termination)
        self._safe: dict[str, set[str]] = {}
        """The messages of the last call that another set of brokers lost, by name of the copy.

        If they are delivered again, only those that lost them get them.
        """
        self._copies = [_CopyCourier(copy) for copy in config.copies]

    def __enter__(self) -> Courier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def deliver(self, messages: Iterable[Message], deadline: Deadline) -> Publication:
        """Return once each message is confirmed or spooled, for the section and for each copy.

        The outcome is that of the section, with those of the copies beside it.

        Raises:
            NoBrokerTookIt: some messages were lost, by the section or by a copy.
            ConfigError: they can't be signed, and were not sent.
        """
        originals = list(messages)
        safe, self._safe = self._safe, {}

        def unsafe(copy_name: str) -> list[Message]:
            done = safe.get(copy_name, ())
            return [m for m in originals if m.message_id not in done] if done else originals

        batch = self._main.batch_of(unsafe(""))
        for copy in self._copies:
            own = messages_of_copy(unsafe(copy.config.copy_name), self._config, copy.config)
            copy.batch = copy.brokers.batch_of(own)
        for copy in self._copies:
            copy.start(copy.brokers.offer, copy.batch, deadline)
        losses: list[NoBrokerTookIt] = []
        try:
            self._main.offer(batch, deadline)
            try:
                publication = self._main.settle(batch, deadline)
            except NoBrokerTookIt as loss:
                publication = loss.publication
                losses.append(loss)
            copies = []
            for copy in self._copies:
                self._await(copy, deadline)
                try:
                    outcome = copy.brokers.settle(copy.batch, deadline)
                except NoBrokerTookIt as loss:
                    outcome = loss.publication
                    losses.append(loss)
                copies.append((copy.config.copy_name, outcome))
        finally:
            for copy in self._copies:
                copy.abandon()  # if an error or an interrupt ended this before it did
        publication = publication._replace(copies=tuple(copies))
        if losses and self._copies:
            missing = {loss.copy_name: {m.message_id for m in loss.missing} for loss in losses}
            lost = set().union(*missing.values())
            for copy_name in ("", *(copy.config.copy_name for copy in self._copies)):
                self._safe[copy_name] = lost - missing.get(copy_name, set())
            losses[0].publication = publication
            losses[0].missing = tuple(m for m in originals if m.message_id in lost)
            losses[0].others = losses[1:]
        if losses:
            raise losses[0]
        return publication

    def drain(self, deadline: Deadline) -> int:
        """Send spooled messages of earlier calls, from each spool; return their number."""
        for copy in self._copies:
            copy.start(copy.brokers.drain, deadline)
        try:
            drained = self._main.drain(deadline)
            for copy in self._copies:
                drained += self._await(copy, deadline) or 0
        finally:
            for copy in self._copies:
                copy.abandon()
        return drained

    def close(self) -> None:
        for brokers in (self._main, *(copy.brokers for copy in self._copies)):
            brokers.close()

    def _await(self, copy: _CopyCourier, deadline: Deadline) -> Any:
        """The result of the copy's thread; None if it failed, is late, or a SIGTERM arrived."""
        termination = self._termination if copy.config.spool else None
        result = None
        try:
            if termination:
                termination.interrupts = True
                if termination.received:
                    raise Terminated
            try:
                result = copy.wait(Deadline(deadline.ends_at + GRACE_S))
            except TimeoutError:
                logger.warning("copy %s: not done in time", copy.config.copy_name)
            except Exception:  # a bug, which shall not lose the messages
                logger.exception("copy %s", copy.config.copy_name)
        except Terminated:
            pass
        if termination:
            termination.interrupts = False
        copy.abandon()
        return result


class _CopyCourier:
    """The brokers of a copy, and the call under way."""

    def __init__(self, config: PublisherConfig) -> None:
        self.config = config
        self.brokers = BrokerSet(config)
        self.batch = MessageBatch(())
        self._call: BackgroundCall | None = None

    def start(self, work: Callable[..., object], *arguments: object) -> None:
        self._call = BackgroundCall(work, *arguments)

    def wait(self, deadline: Deadline) -> Any:
        """The result of the call; raises TimeoutError if it takes longer."""
        assert self._call is not None
        result = self._call.result(deadline)
        self._call = None
        return result

    def abandon(self) -> None:
        """Detach the call under way, if there is one: its outcome no longer counts."""
        if self._call is not None:
            self._call = None
            self.brokers = BrokerSet(self.config)
            self.batch = self.batch.snapshot()
