"""Messages into a directory queue, headers and ids kept: for another consumer to load."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from sam_pipeline.consumer.core.inbox import Delivery
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.sql.loading.load import Loaded

MOVED = Loaded({}, {}, 0, {})
"""Nothing is looked into, so nothing can be bad."""


class SpoolSink:
    """One directory queue. A message that comes again is there twice, under one id: whoever loads
    them stores it once."""

    def __init__(self, path: Path) -> None:
        self._queue = DirectoryQueue(path)

    def prepare(self) -> None:
        self._queue.has_elements()  # raises where it can't be read

    def load(self, batch: Sequence[Delivery], poison: Collection[str]) -> Loaded:
        contents = [serialise(delivery.message) for delivery in batch]
        for _ in self._queue.store_all(contents):  # each is fsynced when it is named
            pass
        return MOVED

    def upkeep(self, news: bool) -> None:
        pass

    def finish(self) -> None:
        pass
