"""A directory queue as a source: each element is a message, and removing it is the ack."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from sam_pipeline.consumer.core.inbox import NO_LIMIT, Delivery, Inbox
from sam_pipeline.consumer.core.recovery import HintFile
from sam_pipeline.consumer.core.source import growing_delays
from sam_pipeline.consumer.errors import SourceTaken
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.sources.signatures import SignatureCheck
from sam_pipeline.schema.errors import DamagedElement, SpoolError
from sam_pipeline.schema.identity.identity import (
    ANONYMOUS,
    IDENTITY,
    established_identity,
    uid_identity,
    with_identity,
)
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.headers import without_claims
from sam_pipeline.schema.messages.message import KEY_NAME, Message
from sam_pipeline.schema.messages.refused import MARKS
from sam_pipeline.schema.net.broker import Broker
from sam_pipeline.schema.spool.disk import flock_at_once, inaccessible, reason_of
from sam_pipeline.schema.spool.large_element import read_limited
from sam_pipeline.schema.spool.queue import ChangeTimes, DirectoryQueue

POLL_S = 0.2
LOOK_S = 1.0
"""How often to read a spool that seems unchanged: its clock may be too coarse to show a change."""
ROOM_S = 0.5
"""How often a source that waits for room checks whether to stop."""
PURGE_S = 60.0

logger = logging.getLogger(__name__)


class SpoolSource:
    """The queue of one `spool:///` URL; of several readers, each element goes to only one.

    A spool that can't be used is tried again, like a broker that is away. An element or a directory
    that can't be used does not hold up the others.
    """

    answers = False
    batch_size = NO_LIMIT

    def __init__(
        self,
        broker: Broker,
        config: ConsumerConfig,
        signatures: SignatureCheck,
        full_sources: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`full_sources`: as in State; a source in it is left alone."""
        self.name = self.broker = str(broker)
        self._config = config
        self._signatures = signatures
        self._full_sources = full_sources
        self._stamp = config.stamp_of(broker)
        self._relays = config.relay_accounts
        """The accounts of relays, which have established the identities in their elements."""
        self._queue = DirectoryQueue(
            broker.path, broker.shared, lambda name, error: self._blocked.update({name: error})
        )
        self._locked: set[str] = set()
        self._acked: set[str] = set()
        """Locked elements that are acked but could not be removed: they are not delivered again."""
        self._to_unlock: set[str] = set()
        """Elements that an earlier process has locked, or that could not be unlocked."""
        self._blocked: dict[str, Exception] = {}
        """The error by element or directory that is left alone until the next retry."""
        self._problem = "not read yet"
        self._logged: frozenset[str] = frozenset()
        self._purge_at = 0.0

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        config = self._config
        claims = Claims(config.state_directory, config.process_name, str(self._queue.path))
        self._to_unlock = claims.left_behind()
        delays, retry_at = growing_delays(), 0.0
        try:
            while not stop.is_set():
                # Reading a spool often loses nothing, so only a lack of room stops it.
                if reason := self._full_sources.get(self.name):
                    self._problem = reason
                    self._release(claims)
                    stop.wait(ROOM_S)
                    continue
                if self._blocked and time.monotonic() >= retry_at:
                    claims.keep([*self._locked, *self._to_unlock])
                    self._blocked.clear()
                is_new = not self._blocked
                try:
                    before = self._read(inbox, stop, claims)
                except SpoolError as error:
                    self._report(str(error), error)
                    stop.wait(max(next(delays), POLL_S))
                    continue
                if self._blocked:
                    problem = inaccessible(self._queue.path, self._blocked)
                    self._report(problem, *self._blocked.values())
                    if is_new:
                        retry_at = time.monotonic() + next(delays)
                    stop.wait(POLL_S)
                    continue
                if self._problem:
                    self._report("")
                    delays = growing_delays()
                self._queue.wait_for_change(before, stop, LOOK_S)
        finally:
            self._to_unlock |= self._locked
            self._release(claims)
            claims.close()

    def missing(self) -> Sequence[str]:
        return [f"{self.name} ({self._problem})"] if self._problem else []

    def ack(self, tokens: Sequence[str]) -> None:
        """Remove the elements with these names; one that can't be removed now is removed later."""
        for name in tokens:
            try:
                self._queue.remove(name)
            except SpoolError:
                self._acked.add(name)
            else:
                self._locked.discard(name)

    def give_back(self, tokens: Sequence[str]) -> None:
        """Unlock the elements with these names."""
        self._to_unlock.update(tokens)

    def _read(self, inbox: Inbox, stop: threading.Event, claims: Claims) -> ChangeTimes:
        """Deliver all elements that can be; the others are in `_blocked`.

        Returns the times of the queue before it was read.

        Raises:
            SpoolError: the spool itself can't be used.
        """
        self._purge(time.monotonic())
        for name in tuple(self._acked):
            try:
                self._queue.remove(name)
                self._acked.discard(name)
                self._locked.discard(name)
            except SpoolError as error:
                self._blocked[name] = error
        self._release(claims)
        before = self._queue.change_times()
        for name in self._queue.names():
            if stop.is_set():
                break
            if name in self._locked or name in self._blocked:
                continue
            try:
                self._deliver(name, inbox, stop, claims)
            except SpoolError as error:
                if not isinstance(error.__cause__, FileNotFoundError):  # else it was removed
                    self._blocked[name] = error
        return before

    def _deliver(self, name: str, inbox: Inbox, stop: threading.Event, claims: Claims) -> None:
        """Lock, read and deliver an element, or set it aside if it is damaged.

        Raises:
            SpoolError: it stays where it is.
        """
        claims.add(name)
        locked = False
        try:
            locked = self._queue.lock(name)
        finally:
            if not locked:
                claims.withdraw(name)
        if not locked:  # another reader has locked or removed it
            return
        try:
            message, author = read_limited(self._queue, name, self._config.max_message_bytes)
        except DamagedElement as error:
            self._to_unlock.add(name)
            target = self._queue.quarantine(name, str(error))
            self._to_unlock.discard(name)
            inbox.count(Counts(damaged_elements=1))
            text = "spool %s: %s; moved to %s"
            logger.error(text, self.name, error, target, extra={"broker": self.name})
            return
        except SpoolError:
            self._to_unlock.add(name)
            raise
        self._locked.add(name)
        message = self._received(message, author, inbox)
        while not stop.is_set() and not inbox.wait_for_room(self.broker, ROOM_S):
            self._purge(time.monotonic())
        headers = message.headers
        inbox.put([Delivery(message, self, name)], sum(map(len, (*headers, *headers.values()))))

    def _received(self, message: Message, author: int | None, inbox: Inbox) -> Message:
        """An element with its identity, its author or what a relay has established, and class."""
        claimed = message.headers.get(IDENTITY, "") if author in self._relays else ""
        # The reader of this element may have set a mark; a forged one harms only its sender.
        message = without_claims(message, keep=MARKS)
        own = ANONYMOUS if author is None else uid_identity(author)
        message = with_identity(message, established_identity(claimed, own))
        if KEY_NAME in message.headers:  # it says everything itself
            return self._signatures.checked(message, inbox)
        return self._stamp.stamped(message)

    def _release(self, claims: Claims) -> None:
        """Unlock elements that were never acked; others stay claimed until they can be."""
        for name in tuple(self._to_unlock):
            with suppress(SpoolError):
                self._queue.unlock(name)
                self._to_unlock.discard(name)
                self._locked.discard(name)
        if claims.any and not self._locked and not self._to_unlock:
            claims.clear()

    def _report(self, problem: str, *errors: Exception) -> None:
        """Keep the problem for `missing`; log it if a reason of it is new."""
        logged, self._logged = self._logged, frozenset(map(reason_of, errors))
        self._problem = problem
        if not self._logged <= logged:
            fields = {"broker": self.name}
            logger.error("spool %s: %s; trying again", self.name, problem, extra=fields)
        elif logged and not problem:
            logger.info("spool %s: all elements can be read again", self.name)

    def _purge(self, now: float) -> None:
        """Every PURGE_S, refresh our locks and remove stale ones."""
        if now < self._purge_at:
            return
        self._purge_at = now + PURGE_S
        try:
            # The database may be away for longer than a lock lives.
            for name in tuple(self._locked):
                self._queue.refresh(name)
            self._queue.purge()
        except SpoolError as error:  # this loses nothing, and reading may still work
            logger.warning("%s", error)


class Claims(HintFile):
    """The list, on disk, of the elements that this consumer has locked.

    A lock in a directory queue does not name its owner and becomes stale only after ten minutes.
    With this list a consumer that was killed releases its own locks at once when it is restarted.
    It is only appended to, and emptied whenever nothing is claimed.
    """

    def __init__(self, directory: Path, consumer: str, spool: str) -> None:
        digest = hashlib.sha256(f"{consumer}\0{spool}".encode()).hexdigest()[:16]
        super().__init__(directory / f"consume-{digest}.claims")
        if not flock_at_once(self.descriptor):
            self.close()
            raise SourceTaken(f"another sam-consume named {consumer!r} reads {spool}")
        self.any = True
        """Whether there may be claims; an earlier process may have left some."""

    def left_behind(self) -> set[str]:
        """The elements that an earlier process claimed and may still have locked."""
        names: set[str] = set()
        for line in self.read().decode("ascii", "replace").splitlines():
            if line.startswith("-"):
                names.discard(line[1:])
            else:
                names.add(line)
        return names

    def add(self, name: str) -> None:
        """Claim an element before it is locked, so that a kill leaves no lock without a claim."""
        self.any = True
        self.append(f"{name}\n".encode("ascii"))

    def withdraw(self, name: str) -> None:
        """Another reader has the lock."""
        self.append(f"-{name}\n".encode("ascii"))

    def keep(self, names: Iterable[str]) -> None:
        """Forget the history: only these elements are claimed."""
        self.replace("".join(f"{name}\n" for name in names).encode("ascii"))

    def clear(self) -> None:
        self.any = False
        self.replace(b"")
