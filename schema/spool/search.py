"""Finds messages in a directory queue by their ids, without a lock and without a change."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Callable, NamedTuple

from sam_pipeline.schema.errors import DamagedElement, SpoolError
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.element import MAX_BODY_BYTES
from sam_pipeline.schema.spool.queue import DirectoryQueue

BEGINNING = 64 * 1024
"""Bytes of a damaged element that are searched."""

Stamped = Callable[[Message], Message]


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
    stamped: Stamped = lambda message: message,
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
            message, _ = queue.read_limited(name, max_body_bytes)
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
