"""The messages that no broker of a relay takes, kept in a directory queue of their own.

Each has the reason in a header. `sam-publish spool` lists, shows, drops and sends them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, MutableMapping
from pathlib import Path
from typing import NamedTuple

from sam_pipeline.schema.messages.message import DESTINATION, Message
from sam_pipeline.schema.net.stomp.headers import REJECTED
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.schema.spool.queue import DirectoryQueue

logger = logging.getLogger(__name__)


class RejectedMessage(NamedTuple):
    """A message that no broker takes, and why."""

    message: Message
    reason: str


class RejectedStore:
    """The directory of one relay; the first message creates it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue = DirectoryQueue(path)

    def keep(
        self, rejections: MutableMapping[int, RejectedMessage], answered: Collection[int]
    ) -> int:
        """Store the messages, by position, and remove those that are stored; returns their number.

        The senders of the `answered` ones keep them.

        Raises:
            SpoolError: those that remain are not stored.
        """
        positions = [at for at in rejections if at not in answered]
        elements = [
            serialise(Message({**message.headers, REJECTED: reason}, message.body))
            for message, reason in map(rejections.__getitem__, positions)
        ]
        kept: dict[tuple[str, str], list[str]] = {}
        for at, _ in zip(positions, self._queue.store_all(elements), strict=True):
            message, reason = rejections.pop(at)
            destination = message.headers.get(DESTINATION, "")
            kept.setdefault((destination, reason), []).append(message.message_id)
        for (destination, reason), ids in kept.items():
            logger.error(
                "%s rejected, first %s to %s: %s; kept in %s (docs/consumer.md, Rejected messages)",
                plural(len(ids), "message"),
                ids[0],
                destination or "no destination",
                reason,
                self._path,
                extra={"message_id": ids[0]},
            )
        return len(elements)
