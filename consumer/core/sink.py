"""Where messages go to: the seam that the database and the relay implement."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from sam_pipeline.consumer.core.inbox import Delivery
from sam_pipeline.consumer.core.tally import Tally


class Sink(Protocol):
    """Stores batches. `prepare` and `load` raise SinkAway for what may work later."""

    def prepare(self) -> None:
        """Check that batches can be stored, before anything is acked.

        Raises:
            SamError: they can't, until somebody changes something.
        """

    def load(self, batch: Sequence[Delivery], poison: Collection[str]) -> Tally:
        """Store the messages, those with the ids in `poison` unread; what became of them.

        Everything is committed when it returns, and nothing when it raises.
        """

    def upkeep(self, news: bool) -> None:
        """Do other work between two batches, in little time; `news`: something was stored."""

    def finish(self) -> None:
        """Do what is left when the last batch is stored."""
