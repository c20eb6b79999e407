"""A look at the messages of all sources: none is stored or acknowledged, and no broker waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence

from sam_pipeline.consumer.core.inbox import BatchRule, Delivery, Inbox, Session
from sam_pipeline.consumer.core.source import Source, delivering
from sam_pipeline.consumer.errors import SourceUnreachable
from sam_pipeline.schema.messages.message import Message

MAX_MESSAGES = 1000
"""Messages that wait until they are printed; further ones are left out."""
MAX_BYTES = 16 * 1024 * 1024
IDLE_S = 0.2
"""How often a look without messages checks whether it goes on."""
QUIET_S = 1.0
"""When everything there is was read, and nothing arrived for this time, the look ends."""
_RULE = BatchRule(size=100, age_s=0.0)


class TapInbox(Inbox):
    """An inbox that holds up no broker: without room it leaves messages out, and counts them."""

    def __init__(
        self,
        wanted: Callable[[Message], bool] = lambda message: True,
        max_messages: int = MAX_MESSAGES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """Messages that are not `wanted` are neither delivered nor counted."""
        super().__init__(max_messages, max_bytes)
        self._wanted = wanted
        self.left_out = 0
        """The number of messages for which there was no room."""
        self.reached: set[Session] = set()
        """The sessions that deliver at present."""
        self.exhausted: set[Session] = set()
        """Of them those that have delivered all they had and will deliver no more."""

    def has_room_for(self, broker: str) -> bool:
        return True

    def put(self, deliveries: Sequence[Delivery], head_bytes: int = 0) -> None:
        wanted = [delivery for delivery in deliveries if self._wanted(delivery.message)]
        if self.has_room:
            super().put(wanted, head_bytes)
        else:
            self.left_out += len(wanted)

    def discard(self, session: Session) -> None:
        """The session is lost; its broker does not deliver its messages again."""
        self.reached.discard(session)
        self.exhausted.discard(session)


def passing(
    sources: Sequence[Source],
    inbox: TapInbox,
    goes_on: Callable[[], bool],
    patience_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[Delivery]:
    """The messages that pass, while `goes_on()`; it is asked at least every IDLE_S.

    It also ends when all sources have delivered everything there is.

    Raises:
        SourceUnreachable: no source could be read for as long as the patience lasts.
    """
    with delivering(sources, inbox):
        reached_at = arrived_at = clock()
        while goes_on():
            batch = inbox.take(_RULE, IDLE_S)
            yield from batch
            now = clock()
            if inbox.reached:
                reached_at = now
            if batch or inbox.reached - inbox.exhausted:
                arrived_at = now
            missing = [problem for source in sources for problem in source.missing()]
            if missing and now - reached_at >= patience_s:
                raise SourceUnreachable(missing, patience_s)
            if inbox.exhausted and now - arrived_at >= (patience_s if missing else QUIET_S):
                return
