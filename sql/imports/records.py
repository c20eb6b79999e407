"""`sam-db import records`: history from files, by the same road as records from a broker."""

from __future__ import annotations

import hashlib
import logging
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import Connection, Engine

from sam_pipeline.schema.chunks import chunks
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.messages.message import (
    CLASS,
    CONTENT_TYPE,
    JSON,
    MESSAGE_ID,
    TEXT,
    Message,
)
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.records.classes import built_in
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.transaction import load_transaction
from sam_pipeline.sql.errors import PERMISSION_DENIED, DatabaseRefused
from sam_pipeline.sql.imports.checkpoint import Places, Tally, size_of
from sam_pipeline.sql.imports.input_file import InputFile
from sam_pipeline.sql.imports.splitter import Piece, Pieces, Place
from sam_pipeline.sql.loading.audit import Audit, write_audit
from sam_pipeline.sql.loading.batch import CLASS_BROKEN, Failure, read_batch
from sam_pipeline.sql.loading.catalogue import Catalogue, ClassView
from sam_pipeline.sql.loading.dead_letter import keep
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.insert import insert_batch

BATCH_RECORDS = 1_000
BATCH_BYTES = 4 * 1024 * 1024
FOLD_EVERY = 50
"""Batches after which current_status and the days that are due follow."""

WHO = "sam-db import"
"""The consumer in `load_audit`; its broker is the file."""

FILE, LINE = "importFile", "importLine"
"""Headers that tell where a dead letter came from."""

FIRST_DAY = datetime(2000, 1, 1, tzinfo=UTC)
"""No probe ran before: an earlier time is a clock that was never set."""

MOST_PROBLEMS = 1_000
"""So many are listed; they are always counted."""

logger = logging.getLogger(__name__)


def limits_of_history(now: datetime, age_limit: timedelta | None = None) -> Limits:
    """The past is what an import is for; the future is as bad as ever."""
    return Limits(past=age_limit or now - FIRST_DAY)


@dataclass
class Import:
    """Imports file after file into one view; `tally` and `problems` are of all of them."""

    engine: Engine
    catalogue: Catalogue
    class_name: str
    limits: Limits
    progress: Progress
    state: Path
    restart: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        self.tally = Tally()
        self.problems: list[str] = []
        self.damaged = 0
        self._done: list[Places] = []
        self._view = usable_view(self.catalogue, self.class_name)

    def run(self, name: str) -> None:
        """All records of a file.

        Raises:
            DatabaseAway, BadInput, KeyboardInterrupt: what was committed is remembered.
        """
        with InputFile(name) as file:
            places = None if self.dry_run else self._places(file)
            place, tally = self._left(places)
            pieces = Pieces(file, self.class_name, self._view.columns, place)
            self.progress.name = file.name
            batches = chunks(pieces, lambda piece: len(piece.raw), BATCH_RECORDS, BATCH_BYTES)
            try:
                for number, batch in enumerate(batches, 1):
                    self._commit(batch, pieces, tally, places)
                    if number % FOLD_EVERY == 0 and not self.dry_run:
                        fold_all(self.engine)
            finally:
                self.progress.end()
                self.tally.add(tally)
            if not self.dry_run:
                fold_all(self.engine)
            if pieces.damage:
                self._tell_damage(file.name, pieces)
            if places:
                self._done.append(places)

    def end(self) -> None:
        """All files are done: a repeat does all of them again, whatever became of the database."""
        for places in self._done:
            places.forget()

    def _commit(
        self, batch: Sequence[Piece], pieces: Pieces, tally: Tally, places: Places | None
    ) -> None:
        messages = [self._message(piece, pieces) for piece in batch]
        if self.dry_run:
            self._look(messages, tally)
        else:
            size = self._load(messages, pieces.file.name, tally)
            if places:
                places.keep(batch[-1].end, tally, size)
        done, resumed = self.tally.records + tally.records, self.tally.resumed + tally.resumed
        self.progress.show(done, pieces.file.share, resumed)

    def _load(self, messages: Sequence[Message], file: str, tally: Tally) -> int:
        """Store and commit; the database's size then."""
        now = datetime.now(UTC)
        batch = read_batch(self.catalogue, messages, now, self.limits)
        audit = Audit(WHO, socket.gethostname(), os.getpid(), {file: len(messages)})

        def action(connection: Connection) -> tuple[int, Sequence[Failure], dict[str, int], int]:
            inserted = insert_batch(connection, batch)
            refuse_broken_class(inserted.failures)
            kept = keep(connection, inserted.failures, now)
            write_audit(
                connection,
                audit,
                messages=len(messages),
                rows=inserted.rows,
                dead_letters=sum(kept.values()),
                checks=0,
            )
            return inserted.rows, inserted.failures, kept, size_of(connection)

        rows, failures, kept, size = load_transaction(self.engine, action)
        tally.add(Tally(len(messages), rows, len(failures), 0, kept, batch.ignored_keys))
        return size

    def _look(self, messages: Sequence[Message], tally: Tally) -> None:
        """What the database itself would refuse is not found by that."""
        batch = read_batch(self.catalogue, messages, datetime.now(UTC), self.limits)
        views = batch.by_view.values()
        failures = [*batch.failures, *(bad for view in views for bad in view.refused())]
        rows = sum(len(view.rows()) for view in views)
        tally.add(Tally(len(messages), rows, len(failures), ignored_keys=batch.ignored_keys))
        for one in failures[: MOST_PROBLEMS - len(self.problems)]:
            self.problems.append(f"{place_of(one)}: {one.reason}: {one.text}")

    def _message(self, piece: Piece, pieces: Pieces) -> Message:
        """One record: its id, and so its dead letter, is the same wherever the record stands."""
        headers = {
            CLASS: self.class_name,
            MESSAGE_ID: content_id(self.class_name, piece.raw),
            CONTENT_TYPE: JSON if pieces.is_json else TEXT,
            FILE: pieces.file.name,
            LINE: str(piece.line),
        }
        return Message(headers, piece.raw)

    def _places(self, file: InputFile) -> Places | None:
        if file.facts is None:
            return None  # a pipe starts at the front again
        path = Path(file.name).resolve()
        places = Places(self.state, self.engine, self._view.name, file, path)
        if self.restart:
            places.forget()
        return places

    def _left(self, places: Places | None) -> tuple[Place, Tally]:
        if places is None:
            return Place(), Tally()
        with reading(self.engine) as connection:
            place, tally = places.left(connection)
        if place.record:
            logger.info("%s: %d records were imported before: going on", places.file, place.record)
        return place, tally

    def _tell_damage(self, name: str, pieces: Pieces) -> None:
        self.damaged += 1
        words = f"{name}: {pieces.damage}; the {pieces.place.record} whole records before it"
        verb = "were looked at" if self.dry_run else "are imported: get the file again, and repeat"
        self.problems.append(f"{words} {verb}")
        logger.error("%s %s", words, verb)


def usable_view(catalogue: Catalogue, class_name: str) -> ClassView:
    """The view of a class.

    Raises:
        ConfigError: there is none, or it can't be used: better told once than of each record.
    """
    view = catalogue.find(class_name)
    if view is None and built_in(class_name):
        raise ConfigError([f"{class_name}: the view or its trigger is missing (sam-db check)"])
    if view is None:
        raise ConfigError([f"{class_name[:80]}: no class view of that name (sam-db classes)"])
    if view.problem:
        raise ConfigError([f"{class_name}: {view.problem}"])
    return view


def refuse_broken_class(failures: Iterable[Failure]) -> None:
    """A class that broke meanwhile is nobody's dead letter: the file still has the records.

    Raises:
        DatabaseRefused, ConfigError: to be raised in the transaction, which undoes it.
    """
    for failure in failures:
        if failure.reason == CLASS_BROKEN:
            is_denied = f": {PERMISSION_DENIED}: "
            words = f"{failure.text}: mend it (sam-db check), then repeat the command"
            raise DatabaseRefused(words) if is_denied in failure.text else ConfigError([words])


def content_id(class_name: str, raw: bytes) -> str:
    """The message id of a record from a file: a repeat has the same."""
    digest = hashlib.sha256(class_name.lower().encode("utf-8", "replace") + b"\0" + raw.strip())
    return f"import-{digest.hexdigest()[:32]}"


def place_of(failure: Failure) -> str:
    headers = failure.message.headers
    return f"{headers[FILE]}:{headers[LINE]}"
