"""Send the elements of the spool to a broker, oldest first.

An element is locked while it is sent, and removed once it is confirmed: several processes may
drain at once, and the elements locked by a killed one are sent again, with the same message ids.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Optional

from sam_pipeline.publisher.brokers.transport import Transport, kind_of, outcomes
from sam_pipeline.publisher.delivery.outgoing import addressed, addressed_to
from sam_pipeline.publisher.delivery.route import Memory, Route
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.schema.errors import DamagedElement, SpoolError
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.messages.destination import problem_of_destination
from sam_pipeline.schema.messages.message import DESTINATION, Message
from sam_pipeline.schema.net.broker import Target
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.spool.directory import LOCK_AGE_S, open_directory
from sam_pipeline.schema.spool.disk import flock_at_once, inaccessible
from sam_pipeline.schema.spool.queue import DirectoryQueue

if TYPE_CHECKING:
    from threading import Event
BATCH = 200
BATCH_BYTES = 8 * 1024 * 1024
MAX_BATCH_S = LOCK_AGE_S / 2
"""A batch ends before its locks expire, however long the timeout is."""

MIN_WAIT_S, IDLE_WAIT_S, MAX_WAIT_S = 0.5, 4.0, 30.0
"""Between two rounds the wait doubles, up to the second figure while the spool is empty, which is
cheap to find out, and up to the third while no broker takes anything."""
IN_PASSING = 0.2
"""The share of a call's time limit in which it may send messages of earlier calls."""
REST_S = 300.0
"""A rejected element is not sent again for this time."""

logger = lazy_logger(__name__)


class DrainTotals:
    """The outcome of a drain; elements neither sent nor set aside are still in the spool."""

    def __init__(self) -> None:
        self.sent = 0
        self.rejected: dict[str, str] = {}
        """The broker and its reason, by rejected element; these stay in the spool."""
        self.set_aside = 0
        """Elements that can't be sent, because they are damaged or have no valid destination; they
        are now in the quarantine beside the spool."""
        self.locked: set[str] = set()
        """Elements that another process had locked."""
        self.inaccessible: dict[str, Exception] = {}
        """The error by element or directory that this account can't use."""
        self.complete = False
        """Every element was offered to a broker."""

    @property
    def rejections(self) -> dict[str, int]:
        """The number of rejected elements by broker and reason."""
        return dict(Counter(self.rejected.values()))


GoOn = Callable[[DrainTotals], bool]
"""Called after each batch; returns whether to go on."""


def drain(
    config: PublisherConfig, go_on: GoOn = lambda _: True, pass_over: Collection[str] = ()
) -> DrainTotals:
    """Send all elements to the first broker that takes them; the next gets those it did not take.

    `config.timeout_s` limits connecting and each batch: a drain goes on while a broker confirms.

    Args:
        pass_over: names of elements that are not sent.
    """
    if config.spool is None:
        return DrainTotals()
    passes = _Passes(config.spool, config, go_on, pass_over)
    queue, totals = passes.queue, passes.totals
    queue.purge()
    totals.complete = all(name in pass_over for name in queue.names())
    if totals.complete:
        _log(totals, config.spool)
        return totals
    targets = [target for target in config.targets if not _is_at(target, queue.path)]

    def patience() -> Deadline:
        return Deadline.after(config.timeout_s)

    memory = Memory(config.state, targets)
    with Route(memory, config.order, patience(), ask_all=True) as route:
        for target, _ in route.candidates():
            try:
                with closing(kind_of(target.broker)(target, patience())) as transport:
                    passes.send_to(transport, target, patience)
            except BrokerUnavailable as failure:
                route.failed(target, failure)
            else:
                route.worked(target)
                totals.complete = True
                if not totals.rejected:
                    break
            route.deadline = patience()
    _log(totals, config.spool)
    queue.purge()  # removes directories that are empty now
    return totals


def drain_in_passing(
    transport: Transport, target: Target, config: PublisherConfig, deadline: Deadline
) -> int:
    """Send elements of earlier calls for a share of the time limit; return their number.

    One process at a time does this. Errors are only logged: this call has delivered its messages.
    """
    if config.spool is None or _is_at(target, config.spool):
        return 0
    passes, left = _Passes(config.spool, config, rejected_rest=True), 0
    queue, totals = passes.queue, passes.totals
    try:
        if not queue.has_elements():
            return 0
        drainer_lock = open_directory(os.fspath(config.spool))
        try:
            if flock_at_once(drainer_lock):
                queue.purge()
                limit_s = min(deadline.remaining(), IN_PASSING * config.timeout_s)
                deadline = Deadline.after(limit_s)
                try:
                    passes.send_to(transport, target, lambda: deadline)
                except BrokerUnavailable:
                    if not deadline.expired:
                        raise
                left = queue.count() if deadline.expired else 0
        finally:
            os.close(drainer_lock)
    except (BrokerUnavailable, SpoolError) as error:
        logger.warning("could not drain the spool: %s", error)
    _log(totals, config.spool)
    if left:
        of = f"{totals.sent:,} of {totals.sent + left:,} spooled messages"
        logger.info("sent %s to %s; the rest is sent by the next calls", of, target)
    elif totals.sent:
        logger.info("drained %s to %s", plural(totals.sent, "spooled message"), target)
    return totals.sent


def drain_until(
    stop: Event, config: PublisherConfig, min_wait_s: float = MIN_WAIT_S, rest_s: float = REST_S
) -> DrainTotals:
    """Drain again and again, until `stop` is set; return the totals of all rounds.

    A batch under way is finished first, so that nothing is lost or sent twice.
    """
    totals = DrainTotals()
    wait_s, rest_until = min_wait_s, 0.0
    while not stop.is_set():
        if time.monotonic() > rest_until:
            totals.rejected.clear()
            rest_until = time.monotonic() + rest_s
        try:
            latest = drain(config, lambda _: not stop.is_set(), frozenset(totals.rejected))
        except SpoolError as error:  # such as a file server that is down for a while
            logger.error("%s", error)
            latest = DrainTotals()
        if latest.sent:
            logger.info("drained %s from %s", plural(latest.sent, "message"), config.spool)
        totals.sent += latest.sent
        totals.rejected.update(latest.rejected)
        totals.set_aside += latest.set_aside
        totals.locked, totals.inaccessible = latest.locked, latest.inaccessible
        totals.complete = latest.complete
        longest_s = IDLE_WAIT_S if totals.complete else MAX_WAIT_S
        wait_s = min_wait_s if latest.sent else min(wait_s * 2, longest_s)
        stop.wait(wait_s)
    return totals


def _log(totals: DrainTotals, spool: Path) -> None:
    for rejection, count in totals.rejections.items():
        messages = plural(count, "spooled message")
        logger.error("%s rejected by %s; left in the spool", messages, rejection)
    if totals.inaccessible:
        logger.error("%s", inaccessible(spool, totals.inaccessible))


def _is_at(target: Target, spool: Path) -> bool:
    broker = target.broker  # only a spool has no host
    return not broker.host and os.path.realpath(broker.path) == os.path.realpath(spool)


class _Passes:
    """Passes through a spool, oldest first, and their totals."""

    def __init__(
        self,
        spool: Path,
        config: PublisherConfig,
        go_on: GoOn = lambda _: True,
        pass_over: Collection[str] = (),
        rejected_rest: bool = False,
    ) -> None:
        self.totals = DrainTotals()
        self.queue = DirectoryQueue(
            spool, config.shares_spool, self.totals.inaccessible.__setitem__
        )
        self._config = config
        self._go_on = go_on
        self._pass_over = pass_over
        self._rejected_rest = rejected_rest
        self._locked: set[str] = set()

    def send_to(
        self, transport: Transport, target: Target, patience: Callable[[], Deadline]
    ) -> None:
        """Send batch by batch, until `patience` returns an expired deadline."""
        names = (name for name in self.queue.names() if name not in self._pass_over)
        try:
            while not patience().expired:
                batch: list[tuple[str, Message]] = []
                size = 0
                for name in names:
                    message = self._read_locked(name)
                    if message is not None:
                        batch.append((name, message))
                        size += len(message.body)
                    if len(batch) == BATCH or size >= BATCH_BYTES:
                        break
                if not batch:
                    return
                deadline = Deadline.after(min(patience().remaining(), MAX_BATCH_S))
                messages = addressed_to(target, [message for _, message in batch], self._config)
                for position, rejection in outcomes(transport, messages, deadline):
                    name = batch[position][0]
                    if rejection is None:
                        self.queue.remove(name)
                        self._locked.discard(name)
                        self.totals.rejected.pop(name, None)
                        self.totals.sent += 1
                        continue
                    # A message that needs a broker of another kind: `spool status` shows it.
                    if not (rejection.for_good and self._rejected_rest):
                        self.totals.rejected[name] = str(rejection)
                    if self._rejected_rest:
                        # The lock stays until it expires: otherwise every call would send it
                        # again, and each refusal costs a connection.
                        self._locked.discard(name)
                    else:
                        self._unlock(name)
                if not self._go_on(self.totals):
                    return
        finally:
            for name in tuple(self._locked):
                self._unlock(name)

    def _read_locked(self, name: str) -> Optional[Message]:
        """Lock an element and read its message; None if it is locked, or can't be sent."""
        try:
            if not self.queue.lock(name):
                self.totals.locked.add(name)
                return None
            self.totals.locked.discard(name)
            self._locked.add(name)
            message = addressed(self.queue.read(name), self._config)
            if problem := problem_of_destination(message.headers[DESTINATION]):
                raise DamagedElement(f"element {name}: {problem}")
            return message
        except DamagedElement as damage:
            try:
                path = self.queue.quarantine(name, str(damage))
            except SpoolError as error:
                logger.error("%s; could not be set aside: %s", damage, error)
                self.totals.inaccessible[name] = error
                self._unlock(name)
            else:
                logger.error("%s; moved to %s", damage, path)
                self._locked.discard(name)
                self.totals.set_aside += 1
        except SpoolError as error:  # perhaps only this element belongs to another user
            if not isinstance(error.__cause__, FileNotFoundError):  # else it was removed
                self.totals.inaccessible[name] = error
            if name in self._locked:
                self._unlock(name)
        return None

    def _unlock(self, name: str) -> None:
        self._locked.discard(name)
        with suppress(SpoolError):  # the lock expires
            self.queue.unlock(name)
