"""Load messages: rows into views, all other records into dead letters, then commit.

A transaction stores a bounded number of records and days, so that memory, locks and the time until
a commit are bounded whatever arrives. Messages are decoded as they are needed; those with more
records or days are split.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection, Engine

from sam_pipeline.schema.identity.identity import identity_of
from sam_pipeline.schema.messages.decode_cache import CachedDecoder
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.messages.refused import REFUSED, refusal_of
from sam_pipeline.schema.records.classes import CHECK_CLASS, SERVICE_ENDPOINT, built_in, folded
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.transaction import load_transaction
from sam_pipeline.sql.database.version import session_version
from sam_pipeline.sql.errors import DatabaseAway, DatabaseExhausted, Kind, kind_of
from sam_pipeline.sql.loading.audit import Audit, write_audit
from sam_pipeline.sql.loading.authorise import Authority, RecentRecords
from sam_pipeline.sql.loading.batch import (
    CLASS_BROKEN,
    FILE,
    MAX_RECORDS,
    POISON,
    UNKNOWN_CLASS,
    Batch,
    PendingRow,
    RecordFailure,
    ViewBatch,
    split_batch,
    whole_message,
)
from sam_pipeline.sql.loading.catalogue import SOURCE, Catalogue, Classes, ClassView
from sam_pipeline.sql.loading.insert import Inserted, insert_batch
from sam_pipeline.sql.loading.letters.quota import LetterQuota, Ration
from sam_pipeline.sql.loading.letters.store import (
    NewLetter,
    StoredLetters,
    collapsed,
    store_dead_letters,
)
from sam_pipeline.sql.loading.publishers import name_publishers

T = TypeVar("T")

logger = logging.getLogger(__name__)

POISON_TEXT = (
    "the consumer died repeatedly while it loaded this message, so it was not decoded;"
    " a replay decodes it"
)


class _SchemaUpgraded(Exception):
    """The views may have other columns than those for which the messages were decoded."""


@dataclass
class MessageReport:
    """The outcome of one message: rows stored, rows that changed nothing, and what failed of it.

    Like its dead letters, `failures` has one for the whole message instead of many.
    """

    rows: int = 0
    duplicates: int = 0
    failures: Sequence[RecordFailure] = ()


@dataclass
class Loaded:
    """The outcome of some messages.

    `rows_by_class`: rows stored. `duplicates_by_class`: rows that changed nothing. `refused`:
    records that failed. `dead_letters`: new ones, by reason. `checks`: messages that only test the
    path. `ignored_keys`: how often a key had no column. `repeated_dead_letters`: letters that were
    stored before. `summarised_dead_letters`: letters beyond a limit, which are only counted in a
    summary. `refusals`: records that the policy refuses, or would refuse, by publisher and reason.
    `records`: all decoded ones by identity, if there is a policy. `reports`: on the messages asked
    for, by position.
    """

    rows_by_class: Counter[str] = field(default_factory=Counter)
    duplicates_by_class: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    dead_letters: Counter[str] = field(default_factory=Counter)
    checks: int = 0
    ignored_keys: Counter[str] = field(default_factory=Counter)
    repeated_dead_letters: int = 0
    summarised_dead_letters: int = 0
    refusals: Counter[tuple[str, str]] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    reports: dict[int, MessageReport] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The rows of all classes."""
        return sum(self.rows_by_class.values())

    @property
    def duplicates(self) -> int:
        """The duplicates of all classes."""
        return sum(self.duplicates_by_class.values())

    def add(self, other: Loaded) -> None:
        self.rows_by_class.update(other.rows_by_class)
        self.duplicates_by_class.update(other.duplicates_by_class)
        self.refused += other.refused
        self.dead_letters.update(other.dead_letters)
        self.checks += other.checks
        self.ignored_keys.update(other.ignored_keys)
        self.repeated_dead_letters += other.repeated_dead_letters
        self.summarised_dead_letters += other.summarised_dead_letters
        self.refusals.update(other.refusals)
        self.records.update(other.records)
        self.reports.update(other.reports)


def load(
    engine: Engine,
    catalogue: Catalogue,
    messages: Sequence[Message],
    now: datetime,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
    *,
    authority: Authority | None = None,
    audit: Audit | None = None,
    poison: Collection[str] = (),
    decoding: Callable[[], AbstractContextManager[object]] = nullcontext,
    quota: LetterQuota | None = None,
    recent: RecentRecords | None = None,
    before_commit: Callable[[Connection, Sequence[RecordFailure]], None] | None = None,
    on_commit: Callable[[], None] = lambda: None,
    on_letters: Callable[[Sequence[NewLetter]], None] = lambda letters: None,
    report: Collection[int] = (),
) -> Loaded:
    """Store everything and commit: on return the messages can be acked.

    Without an `authority` every sender may send everything. Messages whose ids are in `poison`
    become dead letters without being decoded; all others are decoded inside a block of `decoding`,
    to which a crash can be attributed. With an `audit` each transaction adds a row to `load_audit`,
    and dead letters name the broker. `quota` limits the dead letters of a sender, and `recent`
    remembers some of the records that are accepted. `before_commit` is called in each transaction
    that completes messages, with their records that failed; if it raises, that transaction is
    rolled back. `on_commit` is called after each transaction, and `on_letters` after one that
    stored dead letters. `report`: the positions of the messages to report on, each of them an
    object of its own.

    Raises:
        DatabaseAway: not everything was committed; load all of it again later.
        LettersFull: the same, but without the messages that it names.
    """
    loading = _Loading(
        engine,
        catalogue,
        messages,
        now,
        limits,
        authority,
        audit,
        poison,
        decoding,
        quota,
        recent,
        before_commit,
        on_commit,
        on_letters,
        {id(messages[position]): position for position in report},
    )
    loading.store(0, len(messages))
    for position in report:
        loading.loaded.reports.setdefault(position, MessageReport())  # of a check
    return loading.loaded


@dataclass
class _Loading:
    """One call of `load`; `loaded` counts the commits so far."""

    engine: Engine
    catalogue: Catalogue
    messages: Sequence[Message]
    now: datetime
    limits: Limits
    authority: Authority | None
    audit: Audit | None
    poison: Collection[str]
    decoding: Callable[[], AbstractContextManager[object]]
    quota: LetterQuota | None
    recent: RecentRecords | None
    before_commit: Callable[[Connection, Sequence[RecordFailure]], None] | None
    on_commit: Callable[[], None]
    on_letters: Callable[[Sequence[NewLetter]], None]
    reported: Mapping[int, int]
    """The positions of the messages to report on, by id() of the message."""
    loaded: Loaded = field(default_factory=Loaded)

    def store(self, start: int, stop: int) -> None:
        """Store and commit the messages from `start` up to `stop`."""
        messages = self.messages[start:stop]
        batches = decode_batches(self.catalogue, messages, self.now, self.limits, self.poison)
        while True:
            with self.decoding():
                batch = next(batches, None)
            if batch is None:
                return
            end = start + batch.size
            if self.authority is not None:
                self.authority.judge(batch, self.now, partial(reading, self.engine))
            try:
                self._store_batch(batch, self.audit and self.audit.of_part(start, end))
            except _SchemaUpgraded:
                self.catalogue.forget()
                self.store(start, stop)
                return
            except DatabaseExhausted as error:
                if batch.size < 2:  # its transactions are bounded: the server must recover
                    raise
                logger.info("loading %d messages in two halves: %s", batch.size, error)
                middle = start + batch.size // 2
                self.store(start, middle)
                self.store(middle, end)
            start = end

    def _store_batch(self, batch: Batch, audit: Audit | None) -> None:
        """Store a batch in as many transactions as its rows need.

        The last one stores all failures, so that those of one message become dead letters together.
        """
        *pieces, last = split_batch(batch)
        earlier: list[Inserted] = []
        for piece in pieces:
            inserted = self._commit(piece, partial(self._insert, piece, audit))
            earlier.append(inserted)
            self.loaded.rows_by_class.update(inserted.rows_by_class)
            self.loaded.duplicates_by_class.update(inserted.duplicates_by_class)
        loaded, letters, used = self._commit(last, partial(self._finish, last, earlier, audit))
        if used:
            used.commit()
        self.loaded.add(loaded)
        if self.recent is not None:
            self.recent.add(batch)
        if letters:
            self.on_letters(letters)
        if CLASS_BROKEN in self.loaded.dead_letters:
            self.catalogue.forget()
        if self.authority is not None and self.loaded.rows_by_class[SERVICE_ENDPOINT.name]:
            self.authority.forget()

    def _commit(self, piece: Batch, action: Callable[[Connection], T]) -> T:
        try:
            self.catalogue.partitions.make(piece.days, self.on_commit)
        except DatabaseAway as error:
            if isinstance(error.__cause__, Exception) and kind_of(error.__cause__) is Kind.RETRY:
                raise
            # The table or a grant is broken, which the insert attributes to the class.

        def run(connection: Connection) -> T:
            if piece.by_view and session_version(connection) != self.catalogue.version:
                raise _SchemaUpgraded
            return action(connection)

        result = load_transaction(self.engine, run)
        self.on_commit()
        return result

    def _insert(self, piece: Batch, audit: Audit | None, connection: Connection) -> Inserted:
        """Insert some of the rows of a batch, of which no message is complete yet."""
        inserted = insert_batch(connection, piece, bool(self.reported))
        if audit is not None:
            write_audit(
                connection,
                audit.of_part(0, 0),
                accepted=inserted.accepted,
                refused=Counter(),
                messages=0,
                rows=inserted.rows,
                duplicates=inserted.duplicates,
                dead_letters=0,
                repeated_dead_letters=0,
                summarised_dead_letters=0,
                checks=0,
            )
        return inserted

    def _finish(
        self,
        batch: Batch,
        earlier: Sequence[Inserted],
        audit: Audit | None,
        connection: Connection,
    ) -> tuple[Loaded, Sequence[NewLetter], Ration | None]:
        """Insert the last rows of a batch, and store all failures."""
        inserted = insert_batch(connection, batch, bool(self.reported))
        parts = [*earlier, inserted]
        failures = [failure for part in parts for failure in part.failures]
        if self.authority is not None:
            name_publishers(connection, self.authority.new_names(inserted.accepted))
        used, letters = None, StoredLetters()
        if failures:
            source_of = self._source_of()
            if self.quota:
                self.quota.budget.measure_if_due(connection)
                used = self.quota.begin(self.now, source_of)
            letters = store_dead_letters(connection, failures, self.now, source_of, used)
        if audit is not None:
            refused = Counter(batch.observed)
            for failure in failures:
                refused[identity_of(failure.message)] += failure.records
            write_audit(
                connection,
                audit,
                accepted=inserted.accepted,
                refused=refused,
                messages=batch.size,
                rows=inserted.rows,
                duplicates=inserted.duplicates,
                dead_letters=letters.new.total(),
                repeated_dead_letters=letters.repeated,
                summarised_dead_letters=letters.summarised,
                checks=batch.checks,
            )
        if self.before_commit is not None:
            self.before_commit(connection, failures)
        loaded = Loaded(
            Counter(inserted.rows_by_class),
            Counter(inserted.duplicates_by_class),
            sum(failure.records for failure in failures),
            letters.new,
            batch.checks,
            batch.ignored_keys,
            letters.repeated,
            letters.summarised,
            batch.refusals,
            batch.records,
            self._reports(parts, failures),
        )
        return loaded, letters.letters, used

    def _reports(
        self, parts: Sequence[Inserted], failures: Sequence[RecordFailure]
    ) -> dict[int, MessageReport]:
        """What became of messages that were inserted in these parts, by position."""
        reports: dict[int, MessageReport] = defaultdict(MessageReport)
        for part in parts:
            for key in part.rows_by_message.keys() & self.reported.keys():
                report = reports[self.reported[key]]
                report.rows += part.rows_by_message[key]
                report.duplicates += part.duplicates_by_message[key]
        mine = [failure for failure in failures if id(failure.message) in self.reported]
        for failure in collapsed(mine):
            report = reports[self.reported[id(failure.message)]]
            report.failures = [*report.failures, failure]
        return reports

    def _source_of(self) -> Callable[[Message], str]:
        """Names the broker of a message, as the audit has it."""
        brokers = self.audit.brokers if self.audit else [""] * len(self.messages)
        by_message = dict(zip(map(id, self.messages), brokers, strict=False))
        return lambda message: by_message[id(message)]


def decode_batch(
    catalogue: Classes,
    messages: Sequence[Message],
    now: datetime,
    limits: Limits,
    poison: Collection[str] = (),
) -> Batch:
    """The messages as a single batch, however many records they have; see `decode_batches`."""
    [batch] = decode_batches(catalogue, messages, now, limits, poison, max_records=sys.maxsize)
    return batch


def decode_batches(
    catalogue: Classes,
    messages: Sequence[Message],
    now: datetime,
    limits: Limits,
    poison: Collection[str] = (),
    max_records: int = MAX_RECORDS,
) -> Iterator[Batch]:
    """The messages decoded for the views of their classes; one whose id is in `poison` fails.

    A batch has at most `max_records` records unless a single message has more. A message is only
    decoded when its batch is needed. There is at least one batch, which may be empty.
    """
    batch, records = Batch(), 0
    classes = [message.message_class or "" for message in messages]
    names = {class_name: folded(class_name) for class_name in set(classes)}
    views = catalogue.find_all(set(names.values()) - {CHECK_CLASS})
    decoders: dict[str, CachedDecoder] = {}
    for message, class_name in zip(messages, classes, strict=True):
        name = names[class_name]
        view = views.get(name)
        if poison and message.message_id in poison:
            batch.failures.append(whole_message(message, POISON, POISON_TEXT))
        elif REFUSED in message.headers and (refusal := refusal_of(message)):
            batch.failures.append(whole_message(message, refusal.reason, refusal.text))
        elif name == CHECK_CLASS:
            batch.checks += 1
        elif view is None or view.problem:
            reason, text = _why_not_loaded(message.message_class, view)
            batch.failures.append(whole_message(message, reason, text))
        else:
            if name not in decoders:
                decoders[name] = CachedDecoder(view.columns, now, limits, view.times)
            decoded = decoders[name].decode(message)
            count = len(decoded.rows)
            if decoded.bad:
                count += sum(refused.records for refused in decoded.bad)
            if records + count > max_records and batch.size:
                yield batch
                batch, records = Batch(), 0
            records += count
            part = batch.by_view.get(view.name)
            if part is None:
                part = batch.by_view[view.name] = ViewBatch(view)
            message_id = message.message_id  # of a foreign message a hash: computed only once
            publisher = identity_of(message)
            part.messages.append(message)
            for row in decoded.rows:
                if FILE in message.headers and SOURCE in view.statement_columns:
                    row = row._replace(values={**row.values, SOURCE: "file"})
                part.rows.append(PendingRow(message, message_id, publisher, row))
            for refused in decoded.bad:
                part.failures.append(RecordFailure(message, *refused))
            if decoded.ignored:
                batch.ignored_keys.update(decoded.ignored)
        batch.size += 1
    yield batch


def _why_not_loaded(class_name: str | None, view: ClassView | None) -> tuple[str, str]:
    """Reason and text of the dead letter of a message whose class has no usable view."""
    if view is not None:
        return CLASS_BROKEN, f"{class_name}: {view.problem}"
    if built_in(class_name):
        text = f"{class_name}: the view or its INSTEAD OF INSERT trigger is missing (sam-db check)"
        return CLASS_BROKEN, text
    if class_name is None:
        return UNKNOWN_CLASS, "the message names no class"
    return UNKNOWN_CLASS, f"{class_name[:80]}: no view of that name with a trigger"
