"""Which messages a killed process had in hand: found again, they are handled with care.

A message that crashes the interpreter or the whole process would do so for ever, since it comes
again and again. So the batch in hand is noted on disk before it is loaded. What was in hand at a
death is loaded in smaller and smaller batches; what kills the process alone, again and again, is
poison: it becomes a dead letter unread, and the others flow.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from sam_pipeline.consumer.core.inbox import Delivery
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.program.command import CANNOT_CREATE

CARE = (1_000_000, 32, 1, 1)
"""How many messages may be in a batch with one that was in hand at so many deaths."""
POISON = len(CARE)
"""At so many deaths it is called poison."""


class Attempts:
    """The file of one consumer. Not fsynced: it need only survive the process."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SpoolError(f"state file {path}: {error.strerror}", CANNOT_CREATE) from error
        self._deaths = _read(self._file)
        if self._deaths:
            self._write([])

    def parts(self, batch: Sequence[Delivery]) -> Iterator[Sequence[Delivery]]:
        """The batch, in order, in parts that may be loaded at a time."""
        if batch and not self._deaths:
            yield batch
            return
        part: list[Delivery] = []
        worst = 0
        for delivery in batch:
            deaths = self._deaths.get(delivery.message.message_id, 0)
            if part and len(part) >= min(_care(worst), _care(deaths)):
                yield part
                part, worst = [], 0
            part.append(delivery)
            worst = max(worst, deaths)
        if part:
            yield part

    def poison(self, batch: Sequence[Delivery]) -> set[str]:
        """Ids of those messages that are not to be looked into."""
        if not self._deaths:
            return set()
        ids = {delivery.message.message_id for delivery in batch}
        return {each for each in ids if self._deaths.get(each, 0) >= POISON}

    def begin(self, batch: Sequence[Delivery]) -> None:
        """Before it is loaded."""
        self._write([delivery.message.message_id for delivery in batch])

    def rest(self) -> None:
        """Nothing is in hand for a while: whoever kills us now has nothing to do with it."""
        self._write([])

    def end(self, batch: Sequence[Delivery]) -> None:
        """It was loaded."""
        for delivery in batch if self._deaths else ():
            self._deaths.pop(delivery.message.message_id, None)
        self._write([])

    def close(self) -> None:
        os.close(self._file)

    def _write(self, in_hand: Sequence[str]) -> None:
        os.ftruncate(self._file, 0)
        if in_hand or self._deaths:
            text = json.dumps({"in_hand": in_hand, "deaths": self._deaths})
            os.pwrite(self._file, text.encode(), 0)


def _care(deaths: int) -> int:
    return CARE[min(deaths, len(CARE) - 1)]


def _read(file: int) -> dict[str, int]:
    """At how many deaths a message was in hand."""
    try:
        found = json.loads(os.pread(file, os.fstat(file).st_size, 0) or b"{}")
        deaths: dict[str, int] = dict(found.get("deaths", {}))
        for message_id in found.get("in_hand", ()):
            deaths[message_id] = deaths.get(message_id, 0) + 1
    except (ValueError, TypeError, AttributeError):  # cut by whatever killed it: then we begin anew
        return {}
    return deaths
