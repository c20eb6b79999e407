"""Where messages go to: the seam that the database and the relay implement."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from sam_pipeline.consumer.core.inbox import Delivery
from sam_pipeline.sql.loading.load import Loaded


class Sink(Protocol):
    """Stores batches. Each method may raise DatabaseAway or SpoolError: the same again later."""

    def prepare(self) -> None:
        """Whether it can be stored to at all, before anything is acked.

        Raises:
            SamError: never, as long as nobody mends something.
        """

    def load(self, batch: Sequence[Delivery], poison: Collection[str]) -> Loaded:
        """Store the messages; those with the ids in `poison` unread. Durable when it returns."""

    def upkeep(self, news: bool) -> None:
        """What is done between two batches, in little time; `news`: something was stored."""

    def finish(self) -> None:
        """What is left to do when the last batch is stored."""
