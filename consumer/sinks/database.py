"""Messages into the database: rows where they are good, dead letters where they are not."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from sqlalchemy import Engine

from sam_pipeline.consumer.core.inbox import Delivery
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.sinks.open_letters import OpenLetters
from sam_pipeline.consumer.sinks.upkeep import upkeep_of
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.database.version import require_current
from sam_pipeline.sql.errors import SqlError
from sam_pipeline.sql.loading.audit import Audit
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.dead_letter import open_by_reason
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.load import Loaded, load


class DatabaseSink:
    """The views of one database; `consumer` is who the audit says it was."""

    def __init__(
        self, engine: Engine, consumer: str, limits: Limits, state: State | None = None
    ) -> None:
        self._engine = engine
        self._consumer = consumer
        self._limits = limits
        self._catalogue = Catalogue(engine)
        self._host = socket.gethostname()
        self._upkeep = upkeep_of(engine, limits)
        self._count_letters = OpenLetters(partial(open_by_reason, engine), state or State())

    def prepare(self) -> None:
        require_current(self._engine)

    def load(self, batch: Sequence[Delivery], poison: Collection[str]) -> Loaded:
        brokers = Counter(delivery.session.broker for delivery in batch)
        return load(
            self._engine,
            self._catalogue,
            [delivery.message for delivery in batch],
            datetime.now(UTC),
            self._limits,
            audit=Audit(self._consumer, self._host, os.getpid(), brokers),
            poison=poison,
        )

    def upkeep(self, news: bool) -> None:
        self._count_letters()
        self._upkeep(news)

    def finish(self) -> None:
        with suppress(SqlError):  # whoever loads next, or reads for a report, does it
            fold_all(self._engine)
