"""The interface of sinks, which store messages: the database, or the spool of a relay."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from sam_pipeline.consumer.core.inbox import Delivery
from sam_pipeline.consumer.core.tally import Tally


class Sink(Protocol):
    """Stores batches. `prepare` and `load` raise SinkAway if a retry may succeed."""

    def prepare(self) -> None:
        """Check that batches can be stored, before anything is acked.

        Raises:
            SamError: they can't, until someone fixes the problem.
        """

    def load(self, batch: Sequence[Delivery], poison: Collection[str]) -> Tally:
        """Store and commit the messages, those with ids in `poison` without decoding them.

        Everything is committed when it returns, and nothing when it raises.
        """

    def upkeep(self, news: bool) -> None:
        """Do a little other work between two batches; `news`: messages were stored."""

    def finish(self) -> None:
        """Complete the other work after the last batch."""
