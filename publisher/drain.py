"""Give what the spool holds to a broker, oldest first.

An element is locked while it is sent and removed when it is confirmed: several processes may
drain at once, and what a killed one held is sent again with the same message id.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from publisher.address import BrokerAddress, addresses_of
from publisher.config import PublisherConfig
from publisher.deadline import Deadline
from publisher.errors import BrokerUnavailable
from publisher.transport import Transport, kind_of, outcomes
from schema.broker import SPOOL
from schema.errors import DamagedElement, SpoolError
from schema.message import Message
from schema.spool import DirectoryQueue

BATCH = 200
BATCH_BYTES = 8 * 1024 * 1024

logger = logging.getLogger(__name__)


@dataclass
class Drain:
    """What became of the elements; whatever was not sent or set aside is still in the spool."""

    sent: int = 0
    rejections: Counter[str] = field(default_factory=Counter)
    """How many were rejected by whom and why; they stay in the spool."""
    set_aside: int = 0
    """Elements that hold no message, now in the quarantine beside the spool."""
    complete: bool = False
    """No broker failed before the last element."""


def drain(config: PublisherConfig) -> Drain:
    """Send all elements to the first broker that takes them; the next one gets what it left.

    `config.timeout_s` bounds connecting and each batch: as long as a broker confirms, it goes on.
    """
    result = Drain()
    if config.spool is None:
        return result
    queue = DirectoryQueue(config.spool)
    queue.purge()
    if next(queue.names(), None) is None:
        result.complete = True
        return result

    def patience() -> Deadline:
        return Deadline.after(config.timeout_s)

    for address in _addresses(config):
        try:
            kind = kind_of(address.broker)
            with closing(kind.connect(address, config, patience())) as transport:
                _drain_to(transport, queue, config, result, patience)
            result.complete = True
            return result
        except BrokerUnavailable as failure:
            logger.warning("broker unavailable: %s", failure)
    return result


def drain_in_passing(
    transport: Transport, address: BrokerAddress, config: PublisherConfig, deadline: Deadline
) -> int:
    """How many elements of earlier calls could be sent within what is left of the deadline.

    One process at a time does this; that a spool can't be drained now is no error of this call.
    """
    if config.spool is None or _is_the_spool(address, config.spool):
        return 0
    queue, result = DirectoryQueue(config.spool), Drain()
    try:
        if next(queue.names(), None) is not None:
            with _sole_drainer(config.spool) as alone:
                if alone:
                    _drain_to(transport, queue, config, result, lambda: deadline)
    except (BrokerUnavailable, SpoolError) as error:
        logger.warning("the spool is not empty yet: %s", error)
    if result.sent:
        logger.info("drained %s spooled messages to %s", result.sent, address)
    return result.sent


def _addresses(config: PublisherConfig) -> Iterator[BrokerAddress]:
    """Where the spool can go: everywhere but to itself."""
    for broker in config.broker_list:
        try:
            found = addresses_of(broker, Deadline.after(config.timeout_s))
        except BrokerUnavailable as failure:
            logger.warning("broker unavailable: %s", failure)
            continue
        for address in found:
            if config.spool is not None and not _is_the_spool(address, config.spool):
                yield address


def _is_the_spool(address: BrokerAddress, spool: Path) -> bool:
    return address.broker.scheme == SPOOL and Path(address.broker.path).resolve() == spool.resolve()


def _drain_to(
    transport: Transport,
    queue: DirectoryQueue,
    config: PublisherConfig,
    result: Drain,
    patience: Callable[[], Deadline],
) -> None:
    """`patience` gives each batch its deadline; one that is over ends the drain."""
    names = queue.names()
    try:
        while not patience().expired:
            batch = _next_batch(queue, names, config, result)
            if not batch:
                return
            _send(batch, transport, queue, patience(), result)
    finally:
        for rejection, count in result.rejections.items():
            logger.error("spooled messages rejected, they stay: %s by %s", count, rejection)


def _next_batch(
    queue: DirectoryQueue, names: Iterator[str], config: PublisherConfig, result: Drain
) -> list[tuple[str, Message]]:
    """Locked elements that are ours to send."""
    batch: list[tuple[str, Message]] = []
    size = 0
    for name in names:
        message = _take(queue, name, result)
        if message is not None:
            batch.append((name, config.addressed(message)))
            size += len(message.body)
        if len(batch) == BATCH or size >= BATCH_BYTES:
            break
    return batch


def _take(queue: DirectoryQueue, name: str, result: Drain) -> Message | None:
    """The message of an element, locked; None where another has it, or nobody can read it."""
    try:
        return queue.read(name) if queue.lock(name) else None
    except DamagedElement as damage:
        logger.error("%s; set aside as %s", damage, queue.quarantine(name, str(damage)))
        result.set_aside += 1
    except SpoolError as error:  # of this element: perhaps it belongs to another user
        logger.warning("element %s is passed over: %s", name, error)
        with suppress(SpoolError):
            queue.unlock(name)
    return None


def _send(
    batch: list[tuple[str, Message]],
    transport: Transport,
    queue: DirectoryQueue,
    deadline: Deadline,
    result: Drain,
) -> None:
    waiting = dict(enumerate(batch))
    try:
        for position, rejection in outcomes(transport, [pair[1] for pair in batch], deadline):
            name, _ = waiting.pop(position)
            if rejection is None:
                queue.remove(name)
                result.sent += 1
            else:
                queue.unlock(name)
                result.rejections[str(rejection)] += 1
    finally:
        for name, _ in waiting.values():
            queue.unlock(name)


@contextmanager
def _sole_drainer(spool: Path) -> Iterator[bool]:
    """Whether no other process drains this spool in passing; the lock dies with its holder."""
    descriptor = os.open(spool, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield _locked(descriptor)
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without such locks: those of the elements are enough
        return True
    return True
