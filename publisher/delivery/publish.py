"""Publish messages as configured: to the brokers, and to those of each copy, at the same time.

Each copy has its connection, its memory of brokers and its spool, and works on a thread of its own
until the deadline. Signals reach the main thread only, so that one spools what a thread has not
delivered: a broker that hangs delays nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sam_pipeline.publisher.delivery.outgoing import messages_of_copy, require_deliverable
from sam_pipeline.publisher.delivery.publication import (
    Courier,
    MessageBatch,
    NoBrokerTookIt,
    Publication,
)
from sam_pipeline.publisher.errors import Terminated
from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.deadline import BackgroundCall, Deadline

if TYPE_CHECKING:
    from typing import Any, Callable

    from sam_pipeline.publisher.delivery.termination import Termination
    from sam_pipeline.publisher.settings import PublisherConfig
    from sam_pipeline.schema.messages.message import Message


def publish(messages: Sequence[Message], config: PublisherConfig) -> Publication:
    """Publish the messages to the configured brokers within `config.timeout_s`.

    On return each message is confirmed by a broker or on disk in the spool, and so it is for each
    copy. Spooled messages of earlier calls are also sent, in at most a fifth of that time.

    Raises:
        MessageRefused: no consumer could receive one of them, or it is too large. Nothing was sent.
        NoBrokerTookIt: some messages were lost; its `publication` has the others.
    """
    for message in messages:
        require_deliverable(message, config)
    deadline = Deadline.after(config.timeout_s)
    with courier_for(config) as courier:
        publication = courier.deliver(messages, deadline)
        return publication._replace(drained=courier.drain(deadline))


def courier_for(
    config: PublisherConfig,
    meanwhile: Callable[[], bool] | None = None,
    termination: Termination | None = None,
) -> Courier | CopyingCourier:
    """A courier for the brokers of the configuration, and those of its copies."""
    if not config.copy:
        return Courier(config, meanwhile, termination)
    return CopyingCourier(config, meanwhile, termination)


GRACE_S = 1.0
"""How long after the deadline a thread may take to notice it, and to close a connection."""

logger = lazy_logger(__name__)


class CopyingCourier:
    """Like a Courier: its outcome is that of the section, with those of the copies beside it."""

    def __init__(
        self,
        config: PublisherConfig,
        meanwhile: Callable[[], bool] | None = None,
        termination: Termination | None = None,
    ) -> None:
        self._config = config
        self._termination = termination
        self._main = Courier(config, meanwhile, termination)
        self._safe: dict[str, set[str]] = {}
        """The messages of the last call that another set of brokers lost, by name of the copy.

        If they are delivered again, only those that lost them get them.
        """
        self._copies = [_CopyCourier(copy) for copy in config.copies]

    def __enter__(self) -> CopyingCourier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def deliver(self, messages: Iterable[Message], deadline: Deadline) -> Publication:
        """Return once each message is confirmed or spooled, for the section and for each copy.

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
            own = unsafe(copy.config.copy_name)
            copy.prepare(messages_of_copy(own, self._config, copy.config))
        for copy in self._copies:
            copy.start(copy.courier.offer, copy.batch, deadline)
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
                    outcome = copy.courier.settle(copy.batch, deadline)
                except NoBrokerTookIt as loss:
                    outcome = loss.publication
                    losses.append(loss)
                copies.append((copy.config.copy_name, outcome))
        finally:
            for copy in self._copies:
                copy.abandon()  # if an error or an interrupt ended this before it did
        publication = publication._replace(copies=tuple(copies))
        if losses:
            missing = {loss.copy_name: {m.message_id for m in loss.missing} for loss in losses}
            lost = set().union(*missing.values())
            for copy_name in ("", *(copy.config.copy_name for copy in self._copies)):
                self._safe[copy_name] = lost - missing.get(copy_name, set())
            losses[0].publication = publication
            losses[0].missing = tuple(m for m in originals if m.message_id in lost)
            losses[0].others = losses[1:]
            raise losses[0]
        return publication

    def drain(self, deadline: Deadline) -> int:
        """Send spooled messages of earlier calls, from each spool; return their number."""
        for copy in self._copies:
            copy.start(copy.courier.drain, deadline)
        try:
            drained = self._main.drain(deadline)
            for copy in self._copies:
                drained += self._await(copy, deadline) or 0
        finally:
            for copy in self._copies:
                copy.abandon()
        return drained

    def close(self) -> None:
        for courier in (self._main, *(copy.courier for copy in self._copies)):
            courier.close()

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
    """The courier of a copy, and its call under way."""

    def __init__(self, config: PublisherConfig) -> None:
        self.config = config
        self.courier = Courier(config)
        self.batch = MessageBatch(())
        self._call: BackgroundCall | None = None

    def prepare(self, messages: Sequence[Message]) -> None:
        self.batch = self.courier.batch_of(messages)

    def start(self, work: Callable[..., object], *arguments: object) -> None:
        self._call = BackgroundCall(work, *arguments)

    def wait(self, deadline: Deadline) -> Any:
        """The result of the call; raises TimeoutError if it takes longer."""
        assert self._call is not None
        result = self._call.result(deadline)
        self._call = None
        return result

    def abandon(self) -> None:
        """Let the call under way, if there is one, end without effect on what comes next."""
        if self._call is not None:
            self._call = None
            self.courier = Courier(self.config)
            self.batch = self.batch.snapshot()
