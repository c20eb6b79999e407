"""The database as a sink: good records become rows, bad records become dead letters."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from sqlalchemy import Engine

from sam_pipeline.consumer.core.inbox import Delivery
from sam_pipeline.consumer.core.sink import Decoding
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.core.tally import Tally
from sam_pipeline.consumer.errors import SinkAway
from sam_pipeline.consumer.sinks.held_name import HeldName
from sam_pipeline.consumer.sinks.upkeep import make_tasks, run_due
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.database.version import require_current
from sam_pipeline.sql.errors import DatabaseAway, DatabaseRefused, SqlError
from sam_pipeline.sql.loading.audit import Audit
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.dead_letter import open_by_reason
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.letter_quota import LetterQuota
from sam_pipeline.sql.loading.load import load

WATCH_EVERY_S = 30.0
"""How often to count the open dead letters, and to check that the name is still held."""

logger = logging.getLogger(__name__)


class DatabaseSink:
    """The views of one database; `consumer` is the name in the audit.

    Unless `held` is None, it is the name to hold in the database while loading.
    """

    def __init__(
        self,
        engine: Engine,
        consumer: str,
        limits: Limits,
        state: State,
        letters_per_hour: int,
        letter_bytes_per_hour: int,
        clock: Callable[[], float] = time.monotonic,
        held: HeldName | None = None,
    ) -> None:
        self._held = held
        self._engine = engine
        self._consumer = consumer
        self._limits = limits
        self._state = state
        self._quota = LetterQuota(letters_per_hour, letter_bytes_per_hour)
        self._clock = clock
        self._catalogue = Catalogue(engine)
        self._host = socket.gethostname()
        self._tasks = make_tasks(engine, self._catalogue.partitions, limits)
        self._watch_at = clock()

    def prepare(self) -> None:
        with self._away_translated():
            require_current(self._engine)
            self._hold_name()

    def load(self, batch: Sequence[Delivery], poison: Collection[str], decoding: Decoding) -> Tally:
        brokers = [delivery.session.broker for delivery in batch]
        broker_by_message: dict[int, str] = {}

        def broker_of(message: Message) -> str:
            if not broker_by_message:  # built when a record is refused, which is rare
                ids = (id(delivery.message) for delivery in batch)
                broker_by_message.update(zip(ids, brokers, strict=True))
            return broker_by_message[id(message)]

        with self._away_translated():
            loaded = load(
                self._engine,
                self._catalogue,
                [delivery.message for delivery in batch],
                datetime.now(UTC),
                self._limits,
                audit=Audit(self._consumer, self._host, os.getpid(), brokers),
                poison=poison,
                decoding=decoding,
                ration=lambda now: self._quota.begin(now, broker_of),
                on_commit=self._state.turned,
            )
        return Tally(
            rows_by_class=loaded.rows_by_class,
            dead_letters=loaded.dead_letters,
            checks=loaded.checks,
            ignored_keys=loaded.ignored_keys,
            repeated_dead_letters=loaded.repeated_dead_letters,
            summarised_dead_letters=loaded.summarised_dead_letters,
        )

    def upkeep(self, news: bool) -> None:
        if self._clock() >= self._watch_at:
            # Without messages, this also shows whether the database is away.
            try:
                self._hold_name()
                self._state.open_dead_letters = open_by_reason(self._engine)
                self._state.can_commit()
            except DatabaseAway as error:
                self._state.cannot_commit(str(error))
            except SqlError as error:
                logger.warning("open dead letters not counted: %s", error)
            self._watch_at = self._clock() + WATCH_EVERY_S
        run_due(self._tasks, news)

    def finish(self) -> None:
        with suppress(SqlError):  # otherwise the next loader or report does it
            fold_all(self._engine)

    def _hold_name(self) -> None:
        if self._held is not None:
            self._held.hold()

    @contextmanager
    def _away_translated(self) -> Iterator[None]:
        try:
            yield
        except DatabaseAway as error:
            self._watch_at = self._clock()  # the name may be lost: check once the database is back
            raise SinkAway(error, needs_action=isinstance(error, DatabaseRefused)) from error
