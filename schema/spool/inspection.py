"""Inspects a directory queue without locking or changing it: whether this account can use it, and
which messages it contains.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from sam_pipeline.schema.errors import DamagedElement, SpoolError
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.directory import DIRECTORY, ELEMENT, author_of
from sam_pipeline.schema.spool.disk import (
    OWNER_MODE,
    inaccessible,
    is_shared,
    refuse_unsafe,
    unusable,
    with_advice,
)
from sam_pipeline.schema.spool.element import MAX_BODY_BYTES
from sam_pipeline.schema.spool.large_element import read_limited
from sam_pipeline.schema.spool.queue import DirectoryQueue

TRIAL_BYTES = 16 * 1024


def shared_by_half(path: Path, shared: bool) -> Optional[str]:
    """Whether a group shares the directory of a queue, but not what this account writes there."""
    if shared or not os.path.exists(path) or not is_shared(path.stat()):
        return None
    group = f"the group of {path} shares it, but could not read what this account writes there"
    return f'{group}: set ?umask=007 in its URL, or spool_mode = "2770" for the spool'


def unusable_quarantine(path: Path) -> Optional[str]:
    """Why damaged elements of a queue that can be used can't be set aside; None if they can."""
    if not unusable(path) and (problem := unusable(Path(f"{path}.bad"))):
        return f"damaged elements could not be set aside: {problem}"
    return None


def writable_by_others(path: Path) -> int:
    """The number of elements whose owner may not be their author, by their mode."""
    with suppress(SpoolError, OSError):
        entries = DirectoryQueue(path, skipped=lambda *_: None).walk([ELEMENT])
        return sum(author_of(entry.status) is None for entry in entries)
    return 0


def unwritable(path: Path) -> Optional[str]:
    """Why nothing new can be written into an existing directory; None if it can be.

    It writes a file of some blocks into a directory of its own, as an element has it, and removes
    both.
    """
    if not os.path.exists(path):
        return None
    trial = path / f".check-{time.time_ns():x}-{os.getpid():x}"
    try:
        os.mkdir(trial, OWNER_MODE)
        try:
            with open(trial / "element", "wb") as file:
                file.write(bytes(TRIAL_BYTES))
                file.flush()
                os.fsync(file.fileno())
        finally:
            with suppress(OSError):
                os.unlink(trial / "element")
            os.rmdir(trial)
    except OSError as error:
        return f"nothing can be written into {path}: {with_advice(error)}"
    return None


def unusable_queue(path: Path, writes: bool = False, shared: bool = False) -> Optional[str]:
    """Why this account can't use a queue, or something in it; None if it can, or can make it.

    Unlike the queue it does not raise: the `check` commands report all problems.

    Args:
        writes: messages are stored there, as by a publisher or a relay.
        shared: a group shares it.
    """
    problem = unusable(path)
    if problem or not os.path.exists(path):
        return problem
    errors: dict[str, Exception] = {}
    queue = DirectoryQueue(path, skipped=errors.__setitem__)
    needed = {DIRECTORY: os.R_OK | os.W_OK | os.X_OK, ELEMENT: os.R_OK}
    try:
        if writes:
            refuse_unsafe(os.fspath(path), shared)
            if shared and not is_shared(status := path.stat()):
                mode = f"{stat.S_IMODE(status.st_mode):04o}"
                return f"{path} is not shared by its group (mode {mode}): chgrp GROUP, chmod 2770"
        for entry in queue.walk(needed):
            if not os.access(path / entry.name, needed[entry.role]):
                errors[entry.name] = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except SpoolError as error:
        return str(error)
    if errors:
        return inaccessible(path, errors)
    return unwritable(path) if writes else None


BEGINNING = 64 * 1024
"""Bytes of a damaged element that are searched."""


class SpoolElement(NamedTuple):
    """An element that contains a message, or, `is_damaged`, at least its id; `file` is its path."""

    message_id: str
    file: str
    is_damaged: bool = False
    message: Message = Message({}, b"")
    reason: str = ""
    """Why it was set aside."""


def elements_of(
    queue: DirectoryQueue,
    wanted: Collection[str],
    since: float,
    stamped: Callable[[Message], Message] = lambda message: message,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> Iterator[SpoolElement]:
    """The elements with one of the wanted ids, without those that were stored before `since`.

    `stamped` adds the headers that the reader of the queue would add: an id may depend on them.

    Raises:
        SpoolError: the queue can't be read.
    """
    for name in queue.names():
        if int(name[:8], 16) < since:
            continue
        file = os.path.join(queue.path, name)
        try:
            message, _ = read_limited(queue, name, max_body_bytes)
        except DamagedElement as error:
            yield from _damaged(file, wanted, str(error))
        except SpoolError as error:
            if not isinstance(error.__cause__, FileNotFoundError):  # else it was read meanwhile
                raise
        else:
            message = stamped(message)
            if message.message_id in wanted:
                yield SpoolElement(message.message_id, file, message=message)
    for entry in queue.aside():
        file = os.path.join(f"{queue.path}.bad", entry.name)
        yield from _damaged(file, wanted, queue.reason_aside(entry.name))


def _damaged(file: str, wanted: Collection[str], reason: str) -> Iterator[SpoolElement]:
    """The wanted ids at the beginning of a file that is not a message."""
    try:
        with Path(file).open("rb") as opened:
            beginning = opened.read(BEGINNING)
    except OSError:
        return
    for message_id in wanted:
        if message_id.encode("utf-8", "replace") in beginning:
            yield SpoolElement(message_id, file, is_damaged=True, reason=reason)
