"""Keeps, on disk, one message that could not be stored: it is stored first when the sink is back.

Only storing a message shows whether a sink takes messages. Without this one, each start of a
consumer during an outage would take messages from the brokers and give them back. Brokers count
that: after ten deliveries, Artemis deletes a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sam_pipeline.consumer.core.inbox import NO_LIMIT, Delivery
from sam_pipeline.consumer.process.hint_file import HintFile
from sam_pipeline.schema.errors import SamError
from sam_pipeline.schema.spool.element import parse, serialise


class UnstoredMessage:
    """The file of one consumer: the name of a broker, then a message as a spool element."""

    def __init__(self, path: Path) -> None:
        self._file = HintFile(path)
        name, _, element = self._file.read().partition(b"\n")
        self.delivery: Delivery | None = None
        """The message; None if the last batch was stored."""
        with suppress(SamError, ValueError):  # it was cut short
            if element:
                self.delivery = Delivery(parse(element), _Kept(name.decode()), None)

    def keep(self, batch: Sequence[Delivery]) -> None:
        """Keep a message of a batch that could not be stored.

        A sender that waits for an answer keeps its message itself.
        """
        kept = next((delivery for delivery in batch if not delivery.session.answers), None)
        if kept and self.delivery is None:
            self.delivery = kept
            name = kept.session.broker.encode()
            self._file.replace(name + b"\n" + serialise(kept.message))

    def forget(self) -> None:
        """A batch was stored."""
        if self.delivery is not None:
            self.delivery = None
            self._file.replace(b"")

    def close(self) -> None:
        self._file.close()


class _Kept:
    """The session of the message: its broker delivers it again, so it is not acked."""

    answers = False
    batch_size = NO_LIMIT

    def __init__(self, broker: str) -> None:
        self.broker = broker

    def ack(self, tokens: Sequence[Any]) -> None:
        pass

    def give_back(self, tokens: Sequence[Any]) -> None:
        pass
