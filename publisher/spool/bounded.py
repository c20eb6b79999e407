"""The spool with its limits on messages and bytes; every message is stored through this class.

    spool = BoundedSpool(config.spool, config, config.shares_spool)
    for message in spool.add_all(messages):  # yields each once it is on disk
        …

A full spool refuses messages (exit code 74) or drops its oldest elements, see `spool_when_full`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.publisher.settings.fields import DROP_OLDEST
from sam_pipeline.publisher.spool.count import CountFile, SpoolCount
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.directory import ASIDE, ELEMENT
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.schema.spool.queue import BATCH, DirectoryQueue

SLACK = 100
"""A full spool drops 1/100 of its limit at once, because it is counted before every drop."""
_FULL = 74

logger = lazy_logger(__name__)


class BoundedSpool:
    """The spool at `path`, with the limits of `config`; `shared` by a group or not."""

    def __init__(self, path: Path, config: PublisherConfig, shared: bool) -> None:
        self._path = path
        self._config = config
        self._queue = DirectoryQueue(path, shared)
        self._count = CountFile(path, config.state)

    def add(self, message: Message) -> str:
        """Store the message durably and return the name of its element.

        Raises:
            SpoolError: the spool or the disk is full; nothing of the message is stored.
        """
        content = serialise(message)
        self._reserve([message], [content])
        return self._queue.store(content)

    def add_all(self, messages: Sequence[Message]) -> Iterator[Message]:
        """Yield the messages in order, each once it is durable; faster than adding them singly.

        Raises:
            SpoolError: the messages that were not yielded are not in the spool.
        """
        for start in range(0, len(messages), BATCH):
            batch = messages[start : start + BATCH]
            contents = [serialise(message) for message in batch]
            try:
                self._reserve(batch, contents)
            except SpoolError:
                if len(batch) == 1:
                    raise
                for message in batch:  # as many as there is room for
                    self.add(message)
                    yield message
            else:
                yield from (m for m, _ in zip(batch, self._queue.store_all(contents)))

    def _reserve(self, messages: Sequence[Message], contents: Sequence[bytes]) -> None:
        need = (len(contents), sum(map(len, contents)))
        with self._count.changing() as count:
            if count.stale or not self._fits(count, need):
                count.recount(self._queue)  # refuse and drop only by an exact count
            if not self._fits(count, need) and self._config.spool_when_full == DROP_OLDEST:
                self._drop_oldest(count, need)
            if not self._fits(count, need):
                config, single = self._config, need[0] == 1
                usage = f"{count.messages} of {config.spool_max_messages} messages"
                usage += f", {count.size_bytes} of {config.spool_max_bytes} bytes"
                refused = f"message {messages[0].message_id}" if single else f"{need[0]} messages"
                problem = f"the spool {self._path} is full ({usage}), {refused} of {need[1]} bytes"
                advice = "drain it, or raise spool_max_messages, spool_max_bytes"
                if any(self._queue.aside()):
                    advice = f"drop the elements set aside in {self._path}.bad, {advice}"
                raise SpoolError(f"{problem} refused: {advice}", _FULL)
            count.messages += need[0]
            count.size_bytes += need[1]

    def _fits(self, count: SpoolCount, need: tuple[int, int]) -> bool:
        return (
            count.messages + need[0] <= self._config.spool_max_messages
            and count.size_bytes + need[1] <= self._config.spool_max_bytes
        )

    def _drop_oldest(self, count: SpoolCount, need: tuple[int, int]) -> None:
        """Drop elements until there is room for `need` (messages, bytes), and some more.

        Those that were set aside come first: no broker gets them.
        """
        if not self._fits(SpoolCount(""), need):  # too much for an empty spool
            return
        limits = self._config.spool_max_messages, self._config.spool_max_bytes
        room = max(need[0], limits[0] // SLACK), max(need[1], limits[1] // SLACK)
        dropped, size_bytes = 0, 0
        for entry in chain(self._queue.aside(), self._queue.walk([ELEMENT])):
            if self._fits(count, room):
                break
            with suppress(SpoolError):  # it belongs to another user: try the next one
                if entry.role == ASIDE:
                    self._queue.remove_aside(entry.name)
                elif self._queue.lock(entry.name):  # else another process works on it
                    self._queue.remove(entry.name)
                else:
                    continue
                size = entry.status.st_size
                dropped, size_bytes = dropped + 1, size_bytes + size
                count.messages, count.size_bytes = count.messages - 1, count.size_bytes - size
        count.dropped += dropped
        text = "the spool %s is full: dropped its %s oldest messages (%s bytes), %s in total"
        logger.error(text, self._path, dropped, size_bytes, count.dropped)
