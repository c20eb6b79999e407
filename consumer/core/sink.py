"""The interface of sinks, which store messages: the database, or the spool of a relay."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from sam_pipeline.consumer.core.inbox import Delivery
from sam_pipeline.consumer.core.tally import Tally

Decoding = Callable[[], AbstractContextManager[object]]
"""Makes the block in which messages are decoded; see `Attempts.decoding`."""


class Sink(Protocol):
    """Stores batches. `prepare` and `load` raise SinkAway if a retry may succeed."""

    def prepare(self) -> None:
        """Check that batches can be stored, before anything is acked.

        Raises:
            SamError: they can't, until someone fixes the problem.
        """

    def load(self, batch: Sequence[Delivery], poison: Collection[str], decoding: Decoding) -> Tally:
        """Store and commit the messages, those with ids in `poison` without decoding them.

        Each message is decoded inside a block of `decoding`. Everything is committed when it
        returns. When it raises, a part may be: load all of it again, which changes nothing there.
        The tally has an outcome for each delivery that is `answering`.
        """

    def upkeep(self, news: bool) -> None:
        """Do a little other work between two batches; `news`: messages were stored."""

    def finish(self) -> None:
        """Complete the other work after the last batch."""
