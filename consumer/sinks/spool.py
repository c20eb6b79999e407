"""A directory queue as a sink, from which another consumer loads the messages as they arrived."""

from __future__ import annotations

from collections.abc import Sequence

from sam_pipeline.consumer.core.attempts import Attempts
from sam_pipeline.consumer.core.inbox import SPOOL, Delivery, MessageOutcome, Outcome, answering
from sam_pipeline.consumer.errors import SinkAway
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.identity.identity import identified
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.schema.spool.queue import DirectoryQueue


class SpoolSink:
    """One directory queue.

    A redelivered message is in it twice, with the same id; the consumer that loads it stores it
    once.
    """

    def __init__(self, broker: Broker, attempts: Attempts) -> None:
        self._attempts = attempts
        self._queue = DirectoryQueue(broker.path, broker.shared)

    def prepare(self) -> None:
        try:
            self._queue.has_elements()  # raises if the queue can't be read
        except SpoolError as error:
            raise SinkAway(error) from error

    def load(self, batch: Sequence[Delivery]) -> Outcome:
        with self._attempts.decoding(batch):
            elements = [serialise(identified(delivery.message)) for delivery in batch]
        try:
            for _ in self._queue.store_all(elements):
                pass  # an element is fsynced when its name is yielded
        except SpoolError as error:
            raise SinkAway(error) from error
        # Messages are not decoded, so none is bad.
        return Outcome(answers=dict.fromkeys(answering(batch), MessageOutcome(SPOOL)))

    def upkeep(self, news: bool) -> None:
        pass

    def finish(self) -> None:
        pass
