"""The elements of a spool, its problems, and its repair."""

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
"""Called with the number of elements read so far."""


class Element(NamedTuple):
    """An element and its message, or the damage that makes it unreadable."""

    entry: Entry
    locked: bool
    message: Optional[Message] = None
    damage: str = ""


class SpoolProblem(NamedTuple):
    """A problem of the file `name`: `problem` is a keyword for programs, `text` for people."""

    name: str
    problem: str
    text: str


class SpoolRepair(NamedTuple):
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


def read(queue: DirectoryQueue, element: Element) -> Element:
    """The element with its message, or with the reason why it can't be read."""
    try:
        return element._replace(message=queue.read(element.entry.name))
    except SpoolError as error:
        return element._replace(damage=str(error))


def problems(queue: DirectoryQueue, seen: Seen = lambda _: None) -> Iterator[SpoolProblem]:
    """Everything that is wrong."""
    count = 0
    for entry in queue.walk():
        problem = _problem_of(queue, entry)
        if problem:
            yield problem
        if entry.role == ELEMENT:
            count += 1
            seen(count)


def repair(queue: DirectoryQueue, seen: Seen = lambda _: None) -> Iterator[SpoolRepair]:
    """Remove what killed processes left and set damaged elements aside; report the rest."""
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
                    yield SpoolRepair(problem, True, f"set aside as {path}")
                else:
                    yield SpoolRepair(problem, False, "left: another process works on it")
            except SpoolError as error:
                yield SpoolRepair(problem, False, f"left: {error}")
        elif problem.name not in left:
            yield SpoolRepair(problem, False, "left: look at it, then remove it or change its mode")


def quarantined(spool: Path) -> int:
    """How many elements are in the quarantine beside the spool."""
    try:
        return sum(not path.name.endswith(".reason") for path in Path(f"{spool}.bad").iterdir())
    except OSError:
        return 0


def _problem_of(queue: DirectoryQueue, entry: Entry) -> SpoolProblem | None:
    mode = entry.status.st_mode
    if stat.S_ISLNK(mode):
        return SpoolProblem(entry.name, LINK, "a symbolic link: it is never followed")
    if entry.role == FOREIGN:
        return SpoolProblem(entry.name, FOREIGN, "not a name of a directory queue: it is ignored")
    if entry.expired:
        return _expired(entry)
    if entry.role in (DIRECTORY, ELEMENT) and mode & stat.S_IWOTH:
        return SpoolProblem(entry.name, MODE, "everybody may write to it: chmod o-w")
    if entry.role != ELEMENT:
        return None
    try:
        queue.read(entry.name)
    except DamagedElement as damage:
        return SpoolProblem(entry.name, DAMAGED, str(damage.__cause__ or damage))
    except SpoolError as error:
        if not isinstance(error.__cause__, FileNotFoundError):  # else it was just drained
            return SpoolProblem(entry.name, UNREADABLE, str(error))
    return None


def _expired(entry: Entry) -> SpoolProblem:
    minutes = abs(time.time() - entry.status.st_mtime) / 60
    if entry.role == LOCK:
        text = f"locked {minutes:.0f} minutes ago, never unlocked"
        return SpoolProblem(entry.name, STALE_LOCK, text)
    return SpoolProblem(entry.name, LEFTOVER, f"begun {minutes:.0f} minutes ago, never finished")
