"""What is in the spools of a configuration: how much, since when, and what can't be sent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.publisher.spool.bounded import CountFile
from sam_pipeline.publisher.spool.inspection import Element, elements
from sam_pipeline.schema.errors import NO_PERMISSION, SpoolError
from sam_pipeline.schema.spool.queue import DirectoryQueue, written_at


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
    """Since it exists; they made room for others."""

    @property
    def fill(self) -> float:
        """How full it is, in percent; elements set aside also count."""
        messages = (self.messages + self.quarantined) / self.max_messages
        return 100 * max(messages, (self.size_bytes + self.quarantined_bytes) / self.max_bytes)


def spool_states(config: PublisherConfig) -> Iterator[SpoolState]:
    """The spool of the section, then those of its copies; none of those that are off.

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
