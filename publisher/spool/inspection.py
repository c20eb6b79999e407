"""What is in the spools of a configuration: size, age and problems; and their repair."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.publisher.spool.bounded import CountFile, counted_losses
from sam_pipeline.schema.errors import NO_PERMISSION, DamagedElement, SpoolError
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.directory import (
    ASIDE,
    DIRECTORY,
    ELEMENT,
    FOREIGN,
    LOCK,
    TEMPORARY,
    Entry,
)
from sam_pipeline.schema.spool.queue import DirectoryQueue, written_at

DAMAGED, LINK, MODE, UNREADABLE = "damaged", "link", "mode", "unreadable"
STALE_LOCK, LEFTOVER = "stale-lock", "leftover"

RECENT = timedelta(days=1)

Seen = Callable[[int], None]
"""Called with the number of elements that were read so far."""


class SpoolState(NamedTuple):
    """The size of a spool; `copy` is the `[[publisher.copy]]` to which it belongs, or empty."""

    copy: str
    path: Path
    messages: int
    size_bytes: int
    max_messages: int
    max_bytes: int
    oldest: Optional[datetime]
    locked: int
    quarantined: int
    quarantined_bytes: int
    dropped: int
    """The number of messages ever dropped to make room for others."""

    @property
    def fill(self) -> float:
        """How full it is, in percent; elements set aside also count."""
        messages = (self.messages + self.quarantined) / self.max_messages
        return 100 * max(messages, (self.size_bytes + self.quarantined_bytes) / self.max_bytes)


class Losses(NamedTuple):
    """The number of results ever lost, and when the last one was lost."""

    results: int = 0
    last: Optional[datetime] = None

    @property
    def recent(self) -> int:
        """The number, if the last one was lost less than a day ago."""
        now = datetime.now(timezone.utc)
        return self.results if self.last and now - self.last < RECENT else 0


def losses(state: Optional[Path]) -> Losses:
    """The losses of this account on this host, as far as they could be recorded."""
    counts = list(counted_losses(state))
    last = max((last for _, last in counts), default=0)
    return Losses(
        sum(results for results, _ in counts),
        datetime.fromtimestamp(last, timezone.utc) if last else None,
    )


def spool_states(config: PublisherConfig) -> Iterator[SpoolState]:
    """The spool of the section, then those of its copies; spools that are off are skipped.

    Raises:
        SpoolError: one can't be read, or only a part of it.
    """
    for one in (config, *config.copies):
        if one.spool is not None:
            skipped: dict[str, Exception] = {}
            queue = DirectoryQueue(one.spool, one.shares_spool, skipped.__setitem__)
            state = state_of(queue, one)
            for directory, error in skipped.items():
                raise SpoolError(f"{one.spool}/{directory} can't be read: {error}", NO_PERMISSION)
            yield state


def state_of(
    queue: DirectoryQueue,
    config: PublisherConfig,
    look: Callable[[Element], object] = lambda _: None,
) -> SpoolState:
    """The size of one spool; `look` is called with each of its elements."""
    count = size_bytes = locked = 0
    oldest = None
    for element in elements(queue):
        look(element)
        oldest = oldest or written_at(element.entry.name)
        count += 1
        size_bytes += element.entry.status.st_size
        locked += element.locked
    aside = [entry.status.st_size for entry in queue.aside()]
    return SpoolState(
        copy=config.copy_name,
        path=queue.path,
        messages=count,
        size_bytes=size_bytes,
        max_messages=config.spool_max_messages,
        max_bytes=config.spool_max_bytes,
        oldest=oldest,
        locked=locked,
        quarantined=len(aside),
        quarantined_bytes=sum(aside),
        dropped=CountFile(queue.path, config.state).read().dropped,
    )


class Element(NamedTuple):
    """An element with its message, or with the reason why it can't be read (`damage`)."""

    entry: Entry
    locked: bool
    message: Optional[Message] = None
    damage: str = ""

    @property
    def is_aside(self) -> bool:
        """Whether it was set aside in the quarantine, because it is damaged."""
        return self.entry.role == ASIDE


class SpoolProblem(NamedTuple):
    """A problem with the file `name`: `problem` is a keyword for programs, `text` a message."""

    name: str
    problem: str
    text: str


class SpoolRepair(NamedTuple):
    """A problem, whether it was fixed, and how."""

    problem: SpoolProblem
    done: bool
    action: str


def elements(queue: DirectoryQueue) -> Iterator[Element]:
    """All elements, oldest first, without their messages."""
    last: Entry | None = None
    for entry in queue.walk([ELEMENT, LOCK]):
        if entry.role == ELEMENT:
            if last:
                yield Element(last, locked=False)
            last = entry
        elif last and entry.name.startswith(last.name):
            yield Element(last, locked=True)
            last = None
    if last:
        yield Element(last, locked=False)


def set_aside(queue: DirectoryQueue) -> Iterator[Element]:
    """The damaged elements in the quarantine, each with the reason why it is there."""
    return (
        Element(entry, locked=False, damage=queue.reason_aside(entry.name))
        for entry in queue.aside()
    )


def drop(queue: DirectoryQueue, element: Element) -> bool:
    """Delete an element permanently; False if another process has locked or removed it."""
    name = element.entry.name
    if element.is_aside:
        queue.remove_aside(name)
        return True
    locked = queue.lock(name)
    if locked:
        queue.remove(name)
    return locked


def read(queue: DirectoryQueue, element: Element) -> Element:
    """The element with its message, or with the reason why it can't be read."""
    if element.is_aside:
        return element
    try:
        return element._replace(message=queue.read(element.entry.name))
    except SpoolError as error:
        return element._replace(damage=str(error))


def problems(queue: DirectoryQueue, seen: Seen = lambda _: None) -> Iterator[SpoolProblem]:
    """All problems of the spool; every element is read."""
    count = 0
    for entry in queue.walk():
        name, mode = entry.name, entry.status.st_mode
        if stat.S_ISLNK(mode):
            yield SpoolProblem(name, LINK, "a symbolic link: it is never followed")
        elif entry.role == FOREIGN:
            yield SpoolProblem(name, FOREIGN, "not a file of a directory queue: it is ignored")
        elif entry.expired:
            yield _expired(entry)
        elif entry.role in (DIRECTORY, ELEMENT) and mode & stat.S_IWOTH:
            yield SpoolProblem(name, MODE, "world-writable: chmod o-w")
        elif entry.role == DIRECTORY:
            path = queue.path / name
            if not os.access(path, os.R_OK | os.X_OK) and path.exists():  # else just purged
                yield SpoolProblem(name, UNREADABLE, "belongs to another user: its elements stay")
        elif entry.role == ELEMENT:
            try:
                queue.read(name)
            except DamagedElement as damage:
                yield SpoolProblem(name, DAMAGED, str(damage.__cause__ or damage))
            except SpoolError as error:
                if not isinstance(error.__cause__, FileNotFoundError):  # else it was just drained
                    yield SpoolProblem(name, UNREADABLE, str(error))
        if entry.role == ELEMENT:
            count += 1
            seen(count)


def repair(queue: DirectoryQueue, seen: Seen = lambda _: None) -> Iterator[SpoolRepair]:
    """Remove leftovers of killed processes, quarantine damaged elements, report other problems."""
    expired = [entry for entry in queue.walk([LOCK, TEMPORARY]) if entry.expired]
    queue.purge()
    left = {entry.name for entry in queue.walk([LOCK, TEMPORARY]) if entry.expired}
    for entry in expired:
        done = entry.name not in left
        yield SpoolRepair(_expired(entry), done, "removed" if done else "could not be removed")
    for problem in problems(queue, seen):
        if problem.problem in (DAMAGED, LINK) and "/" in problem.name:
            try:
                if queue.lock(problem.name):
                    path = queue.quarantine(problem.name, problem.text)
                    yield SpoolRepair(problem, True, f"moved to {path}")
                else:
                    yield SpoolRepair(problem, False, "not fixed: locked by another process")
            except SpoolError as error:
                yield SpoolRepair(problem, False, f"not fixed: {error}")
        elif problem.name not in left:
            yield SpoolRepair(problem, False, "not fixed: remove it, or change its mode")


def _expired(entry: Entry) -> SpoolProblem:
    minutes = abs(time.time() - entry.status.st_mtime) / 60
    if entry.role == LOCK:
        text = f"locked {minutes:.0f} minutes ago, never unlocked"
        return SpoolProblem(entry.name, STALE_LOCK, text)
    return SpoolProblem(entry.name, LEFTOVER, f"written {minutes:.0f} minutes ago, never completed")
