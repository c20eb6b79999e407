"""Give what the spool holds to a broker, oldest first.

An element is locked while it is sent and removed when it is confirmed: several processes may
drain at once, and what a killed one held is sent again with the same message id.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Optional

from sam_pipeline.publisher.brokers.transport import Transport, kind_of, outcomes
from sam_pipeline.publisher.delivery.memory import Memory
from sam_pipeline.publisher.delivery.route import Route
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.errors import DamagedElement, SpoolError
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker_url import SPOOL, Broker
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.spool.directory import LOCK_AGE_S
from sam_pipeline.schema.spool.disk import flock_at_once, open_directory
from sam_pipeline.schema.spool.queue import DirectoryQueue

if TYPE_CHECKING:
    from sam_pipeline.publisher.brokers.address import BrokerAddress

BATCH = 200
BATCH_BYTES = 8 * 1024 * 1024
MAX_BATCH_S = LOCK_AGE_S / 2
"""A batch ends before its locks expire, however long the time-out is."""

logger = lazy_logger(__name__)


class Drain:
    """What became of the elements; whatever was not sent or set aside is still in the spool."""

    def __init__(self) -> None:
        self.sent = 0
        self.rejected: dict[str, str] = {}
        """By name, who rejected an element and why; it stays in the spool."""
        self.set_aside = 0
        """Elements that hold no message, now in the quarantine beside the spool."""
        self.complete = False
        """No broker failed before the last element."""

    @property
    def rejections(self) -> dict[str, int]:
        """How many were rejected by whom and why."""
        counts: dict[str, int] = {}
        for why in self.rejected.values():
            counts[why] = counts.get(why, 0) + 1
        return counts

    def add(self, later: Drain) -> None:
        """What became of those of a later round."""
        self.sent += later.sent
        self.rejected.update(later.rejected)
        self.set_aside += later.set_aside
        self.complete = later.complete


GoOn = Callable[[Drain], bool]
"""Asked after each batch; it may tell a person how far the drain is."""


def drain(
    config: PublisherConfig, go_on: GoOn = lambda _: True, pass_over: Collection[str] = ()
) -> Drain:
    """Send all elements to the first broker that takes them; the next gets what it left or refused.

    `config.timeout_s` bounds connecting and each batch: as long as a broker confirms, it goes on.
    """
    result = Drain()
    if config.spool is None:
        return result
    queue = DirectoryQueue(config.spool)
    queue.purge()
    if pass_over:
        result.complete = all(name in pass_over for name in queue.names())
    else:
        result.complete = not queue.has_elements()
    if not result.complete:
        _drain_to_any(config, queue, result, go_on, pass_over)
        queue.purge()  # the directories that are empty now
    return result


def drain_in_passing(
    transport: Transport, address: BrokerAddress, config: PublisherConfig, deadline: Deadline
) -> int:
    """How many elements of earlier calls could be sent within what is left of the deadline.

    One process at a time does this; that a spool can't be drained now is no error of this call.
    """
    if config.spool is None or _is_at(address.broker, config.spool):
        return 0
    queue, result = DirectoryQueue(config.spool), Drain()
    try:
        if queue.has_elements():
            with _sole_drainer(config.spool) as alone:
                if alone:
                    queue.purge()
                    one_pass = _Pass(queue, config, result, rejected_rest=True)
                    one_pass.send_to(transport, lambda: deadline)
    except (BrokerUnavailable, SpoolError) as error:
        logger.warning("the spool is not empty yet: %s", error)
    _log_rejections(result)
    if result.sent:
        logger.info("drained %s spooled messages to %s", result.sent, address)
    return result.sent


def _drain_to_any(
    config: PublisherConfig,
    queue: DirectoryQueue,
    result: Drain,
    go_on: GoOn,
    pass_over: Collection[str],
) -> None:
    """To one broker after the other, except where the spool itself is one."""
    brokers = [broker for broker in config.broker_list if not _is_at(broker, queue.path)]

    def patience() -> Deadline:
        return Deadline.after(config.timeout_s)

    with Route(config, Memory(config.state, brokers), patience, ask_all=True) as route:
        for turn in route.turns():
            try:
                kind = kind_of(turn.address.broker)
                with closing(kind.connect(turn.address, config, patience())) as transport:
                    one_pass = _Pass(queue, config, result, go_on, pass_over)
                    one_pass.send_to(transport, patience)
            except BrokerUnavailable as failure:
                route.failed(turn.address, failure)
            else:
                route.worked(turn.address)
                result.complete = True
                if not result.rejected:
                    break
    _log_rejections(result)


def _log_rejections(result: Drain) -> None:
    for rejection, count in result.rejections.items():
        logger.error("spooled messages rejected, they stay: %s by %s", count, rejection)


def _is_at(broker: Broker, spool: Path) -> bool:
    return broker.kind == SPOOL and os.path.realpath(broker.path) == os.path.realpath(spool)


class _Pass:
    """One way through the queue, oldest first; `result` sums up all of them."""

    def __init__(
        self,
        queue: DirectoryQueue,
        config: PublisherConfig,
        result: Drain,
        go_on: GoOn = lambda _: True,
        pass_over: Collection[str] = (),
        rejected_rest: bool = False,
    ) -> None:
        self._queue = queue
        self._config = config
        self._result = result
        self._go_on = go_on
        self._names = (name for name in queue.names() if name not in pass_over)
        self._rejected_rest = rejected_rest
        self._held: set[str] = set()

    def send_to(self, transport: Transport, patience: Callable[[], Deadline]) -> None:
        """`patience` gives each batch its deadline; one that is over ends the pass."""
        try:
            while not patience().expired:
                batch = self._next_batch()
                if not batch:
                    return
                seconds = min(patience().remaining(), MAX_BATCH_S)
                self._send(batch, transport, Deadline.after(seconds))
                if not self._go_on(self._result):
                    return
        finally:
            for name in tuple(self._held):
                self._let_go(name)

    def _next_batch(self) -> list[tuple[str, Message]]:
        """Locked elements that are ours to send."""
        batch: list[tuple[str, Message]] = []
        size = 0
        for name in self._names:
            message = self._take(name)
            if message is not None:
                batch.append((name, self._config.addressed(message)))
                size += len(message.body)
            if len(batch) == BATCH or size >= BATCH_BYTES:
                break
        return batch

    def _take(self, name: str) -> Optional[Message]:
        """The message of an element, locked; None if another has it, or nobody can read it."""
        try:
            if not self._queue.lock(name):
                return None
            self._held.add(name)
            return self._queue.read(name)
        except DamagedElement as damage:
            self._set_aside(name, damage)
        except SpoolError as error:  # of this element: perhaps it belongs to another user
            logger.warning("element %s is passed over: %s", name, error)
            self._let_go(name)
        return None

    def _set_aside(self, name: str, damage: DamagedElement) -> None:
        try:
            where = self._queue.quarantine(name, str(damage))
        except SpoolError as error:
            logger.error("%s; it can't be set aside: %s", damage, error)
            self._let_go(name)
        else:
            logger.error("%s; set aside as %s", damage, where)
            self._held.discard(name)
            self._result.set_aside += 1

    def _let_go(self, name: str) -> None:
        self._held.discard(name)
        with suppress(SpoolError):  # then it expires
            self._queue.unlock(name)

    def _send(
        self, batch: list[tuple[str, Message]], transport: Transport, deadline: Deadline
    ) -> None:
        for position, rejection in outcomes(transport, [pair[1] for pair in batch], deadline):
            name = batch[position][0]
            if rejection is None:
                self._queue.remove(name)
                self._held.discard(name)
                self._result.rejected.pop(name, None)
                self._result.sent += 1
            else:
                self._reject(name, str(rejection))

    def _reject(self, name: str, why: str) -> None:
        if self._rejected_rest:
            # Its lock stays until it expires: else every call would ask again, and each refusal
            # costs a connection.
            self._held.discard(name)
        else:
            self._let_go(name)
        self._result.rejected[name] = why


@contextmanager
def _sole_drainer(spool: Path) -> Iterator[bool]:
    """Whether no other process drains this spool in passing; the lock dies with its holder."""
    descriptor = open_directory(os.fspath(spool))
    try:
        yield flock_at_once(descriptor)
    finally:
        os.close(descriptor)
