"""What is in a spool, element by element; what is wrong with it, and mending that."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from sam_pipeline.schema.errors import DamagedElement, SpoolError
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.directory import DIRECTORY, ELEMENT, FOREIGN, LOCK, TEMPORARY, Entry
from sam_pipeline.schema.spool.queue import DirectoryQueue

DAMAGED, LINK, MODE, UNREADABLE = "damaged", "link", "mode", "unreadable"
STALE_LOCK, LEFTOVER = "stale-lock", "leftover"


Seen = Callable[[int], None]
"""Is told how many elements were read until now."""


class Element(NamedTuple):
    """An element and what it holds: a message, or the words why none."""

    found: Entry
    locked: bool
    message: Optional[Message] = None
    damage: str = ""


class Problem(NamedTuple):
    """Something is wrong with `name`; `problem` is a word for programs, `text` for people."""

    name: str
    problem: str
    text: str


class Mended(NamedTuple):
    problem: Problem
    done: bool
    action: str


def elements(queue: DirectoryQueue) -> Iterator[Element]:
    """All of them, oldest first, not read yet."""
    last: Entry | None = None
    for found in queue.walk([ELEMENT, LOCK]):
        if found.role == ELEMENT:
            if last:
                yield Element(last, locked=False)
            last = found
        elif last and found.name.startswith(last.name):
            yield Element(last, locked=True)
            last = None
    if last:
        yield Element(last, locked=False)


def read(queue: DirectoryQueue, element: Element) -> Element:
    """The element with its message, or with what keeps us from reading it."""
    try:
        return element._replace(message=queue.read(element.found.name))
    except SpoolError as error:
        return element._replace(damage=str(error))


def problems(
    queue: DirectoryQueue, seen: Callable[[int], None] = lambda _: None
) -> Iterator[Problem]:
    """Everything that is wrong."""
    count = 0
    for found in queue.walk():
        text = _problem_of(queue, found)
        if text:
            yield text
        if found.role == ELEMENT:
            count += 1
            seen(count)


def repair(queue: DirectoryQueue, seen: Seen = lambda _: None) -> Iterator[Mended]:
    """Sweep what killed processes left, set damaged elements aside; the rest is for a person."""
    expired = [found for found in queue.walk([LOCK, TEMPORARY]) if found.expired]
    queue.purge()
    left = {found.name for found in queue.walk([LOCK, TEMPORARY]) if found.expired}
    for found in expired:
        done = found.name not in left
        yield Mended(_expired(found), done, "removed" if done else "could not be removed")
    for problem in problems(queue, seen):
        if problem.problem in (DAMAGED, LINK) and "/" in problem.name:
            yield _set_aside(queue, problem)
        elif problem.name not in left:
            yield Mended(problem, False, "left: look at it, then remove it or change its mode")


def quarantined(spool: Path) -> int:
    """How many elements are in the quarantine beside the spool."""
    try:
        return sum(not path.name.endswith(".reason") for path in Path(f"{spool}.bad").iterdir())
    except OSError:
        return 0


def _problem_of(queue: DirectoryQueue, found: Entry) -> Problem | None:
    mode = found.status.st_mode
    if stat.S_ISLNK(mode):
        return Problem(found.name, LINK, "a symbolic link: it is never followed")
    if found.role == FOREIGN:
        return Problem(found.name, FOREIGN, "no name of a directory queue: it is ignored")
    if found.expired:
        return _expired(found)
    if found.role in (DIRECTORY, ELEMENT) and mode & stat.S_IWOTH:
        return Problem(found.name, MODE, "everybody may write to it: chmod o-w")
    return _damage_of(queue, found) if found.role == ELEMENT else None


def _expired(found: Entry) -> Problem:
    minutes = abs(time.time() - found.status.st_mtime) / 60
    if found.role == LOCK:
        return Problem(found.name, STALE_LOCK, f"locked {minutes:.0f} minutes ago, never unlocked")
    return Problem(found.name, LEFTOVER, f"begun {minutes:.0f} minutes ago, never finished")


def _damage_of(queue: DirectoryQueue, found: Entry) -> Problem | None:
    try:
        queue.read(found.name)
    except DamagedElement as damage:
        return Problem(found.name, DAMAGED, str(damage.__cause__ or damage))
    except SpoolError as error:
        if isinstance(error.__cause__, FileNotFoundError):  # just drained
            return None
        return Problem(found.name, UNREADABLE, str(error))
    return None


def _set_aside(queue: DirectoryQueue, problem: Problem) -> Mended:
    try:
        if not queue.lock(problem.name):
            return Mended(problem, False, "left: another process works on it")
        where = queue.quarantine(problem.name, problem.text)
    except SpoolError as error:
        return Mended(problem, False, f"left: {error}")
    return Mended(problem, True, f"set aside as {where}")
