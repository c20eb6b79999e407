"""A look at a spool: its elements are read, but neither locked nor removed."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from sam_pipeline.consumer.core.inbox import Delivery, Inbox
from sam_pipeline.consumer.core.tap import TapInbox
from sam_pipeline.consumer.sources.spool import POLL_S, SpoolSource
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.spool.inspection import inaccessible

logger = logging.getLogger(__name__)


class SpoolTap(SpoolSource):
    """Delivers all elements, oldest first, and then those that are added."""

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        assert isinstance(inbox, TapInbox)
        seen: set[str] = set()
        while not stop.is_set():
            try:
                if not Path(self._path).is_dir():
                    raise SpoolError(f"{self._path}: no such directory")
                self._blocked.clear()
                names = list(self._queue.names())
            except SpoolError as error:
                inbox.discard(self)
                self._report(str(error), error)
            else:
                inbox.reached.add(self)
                if self._blocked:
                    problem = inaccessible(self._queue.path, self._blocked)
                    self._report(problem, *self._blocked.values())
                else:
                    self._report("")
                seen.intersection_update(names)
                for name in names:
                    if name not in seen and not self._show(name, inbox, stop):
                        return
                    seen.add(name)
            stop.wait(POLL_S)

    def _show(self, name: str, inbox: TapInbox, stop: threading.Event) -> bool:
        """Deliver an element when there is room, if it can be read; False after a stop."""
        while not inbox.has_room:
            if stop.wait(POLL_S):
                return False
        try:
            message, author = self._queue.read_limited(name, self._max_body_bytes)
        except SpoolError as error:
            if not isinstance(error.__cause__, FileNotFoundError):  # else a consumer was faster
                logger.warning("spool %s: %s", self.name, error, extra={"broker": self.name})
            return True
        inbox.put([Delivery(self._received(message, author, inbox), self, name)])
        return not stop.is_set()
