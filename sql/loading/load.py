"""Load messages: rows into views, all other records into dead letters, then commit.

A transaction stores a bounded number of records and days, so that memory, locks and the time until
a commit are bounded whatever arrives. Messages are decoded as they are needed; those with more
records or days are split.

    loading = Loading(loader, messages, now)
    while loading.is_pending:
        batch = loading.decode()
        for commit in loading.store(batch):
            ...
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection, Engine

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.identity import identity_of
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.decode import CachedDecoder
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.messages.refused import REFUSED, refusal_of
from sam_pipeline.schema.records.classes import CHECK_CLASS, SERVICE_ENDPOINT, built_in, folded
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.transaction import load_transaction
from sam_pipeline.sql.database.version import session_version
from sam_pipeline.sql.errors import (
    PERMISSION_DENIED,
    DatabaseAway,
    DatabaseExhausted,
    DatabaseRefused,
    Kind,
    kind_of,
)
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


@dataclass(frozen=True)
class Loader:
    """Where and how messages are loaded; it stays the same from one batch to the next."""

    engine: Engine
    catalogue: Catalogue
    limits: Limits = field(default_factory=Limits)
    authority: Authority | None = None
    """Without one, every sender may send everything."""
    quota: LetterQuota | None = None
    """The limits on the dead letters of a sender."""
    recent: RecentRecords | None = None
    """Remembers some of the records that are accepted."""
    parks: bool = True
    """Whether messages of a broken class become dead letters; otherwise they are an error."""


@dataclass
class MessageReport:
    """The outcome of one message: rows stored, rows that changed nothing, and what failed of it.

    Like its dead letters, `failures` has one for the whole message instead of many.
    """

    rows: int = 0
    duplicates: int = 0
    failures: list[RecordFailure] = field(default_factory=list)


@dataclass(frozen=True)
class Commit:
    """What one transaction has stored; `counts` are empty if it only created partitions."""

    counts: Counts = field(default_factory=Counts)
    letters: Sequence[NewLetter] = ()
    """The new dead letters, and those that were only counted."""
    records: Mapping[str, int] = field(default_factory=dict)
    """The decoded records of messages that are complete by identity, if there is a policy."""
    reports: Mapping[int, MessageReport] = field(default_factory=dict)
    """On the messages asked for that are complete now, by position."""


def load(
    engine: Engine,
    catalogue: Catalogue,
    messages: Sequence[Message],
    now: datetime,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
) -> Counts:
    """Store everything and commit: on return the messages can be acked.

    Raises:
        DatabaseAway: not everything was committed; load all of it again later.
    """
    return load_all(Loading(Loader(engine, catalogue, limits), messages, now))


def load_all(loading: Loading) -> Counts:
    """Store all of its messages; see `Loading.store`."""
    counts = Counts()
    while loading.is_pending:
        for commit in loading.store(loading.decode()):
            counts += commit.counts
    return counts


class Loading:
    """Some messages on their way into the database; they are complete when none is pending.

    Messages whose ids are in `poison` become dead letters without being decoded. With an `audit`
    each transaction adds a row to `load_audit`, and dead letters name the broker. `report`: the
    positions of the messages to report on, each of them an object of its own.
    """

    def __init__(
        self,
        loader: Loader,
        messages: Sequence[Message],
        now: datetime,
        audit: Audit | None = None,
        poison: Collection[str] = (),
        report: Collection[int] = (),
    ) -> None:
        self._loader = loader
        self._messages = messages
        self._now = now
        self._audit = audit
        self._poison = poison
        self._report = report
        self._done = 0
        """The messages before this position are complete."""
        self._stops = [len(messages)]
        """The position up to which the next transactions store, last; then the one before it."""

    @property
    def is_pending(self) -> bool:
        """Whether there are messages that are not complete."""
        return self._done < len(self._messages)

    def decode(self) -> Batch:
        """The next messages, decoded: as many as one transaction may store, or a single one."""
        while self._stops[-1] <= self._done:
            self._stops.pop()
        stop = min(self._stops[-1], self._done + MAX_RECORDS)
        messages = self._messages[self._done : stop]
        loader = self._loader
        return decode_batch(
            loader.catalogue, messages, self._now, loader.limits, self._poison, MAX_RECORDS
        )

    def store(self, batch: Batch) -> Iterator[Commit]:
        """Store the batch that was decoded last; what each transaction has stored.

        The messages of a batch that is too large for the server, or for whose columns the schema
        has changed, are still pending afterwards.

        Raises:
            DatabaseAway: not everything was committed; load all of it again later.
            LettersFull: the same, but without the messages that it names.
        """
        loader = self._loader
        if loader.authority is not None:
            loader.authority.judge(batch, self._now, partial(reading, loader.engine))
        try:
            for commit in self._transactions(batch):
                if CLASS_BROKEN in commit.counts.dead_letters:
                    loader.catalogue.forget()
                if loader.authority and commit.counts.rows_by_class[SERVICE_ENDPOINT.name]:
                    loader.authority.forget()
                yield commit
        except _SchemaUpgraded:
            loader.catalogue.forget()
        except DatabaseExhausted as error:
            if batch.size < 2:  # its transactions are bounded: the server must recover
                raise
            logger.info("loading %d messages in two halves: %s", batch.size, error)
            self._stops += [self._done + batch.size, self._done + batch.size // 2]
        else:
            self._done += batch.size

    def _transactions(self, batch: Batch) -> Iterator[Commit]:
        """Store a batch in as many transactions as its rows need.

        The last one stores all failures, so that those of one message become dead letters together.
        """
        loader, inserted = self._loader, list[Inserted]()
        *pieces, last = split_batch(batch)
        for piece in pieces:
            yield from self._partitions(piece)
            inserted.append(self._transaction(piece, partial(self._insert, piece)))
            yield Commit(inserted[-1].counts)
        yield from self._partitions(last)
        commit, used = self._transaction(last, partial(self._finish, last, inserted))
        if used:
            used.commit()
        if loader.recent is not None:
            loader.recent.add(batch)
        yield commit

    def _partitions(self, piece: Batch) -> Iterator[Commit]:
        """Create the partitions that the rows need."""
        try:
            if self._loader.catalogue.partitions.make(piece.days):
                yield Commit()
        except DatabaseAway as error:
            if isinstance(error.__cause__, Exception) and kind_of(error.__cause__) is Kind.RETRY:
                raise
            # The table or a grant is broken, which the insert attributes to the class.

    def _transaction(self, piece: Batch, action: Callable[[Connection], T]) -> T:
        def run(connection: Connection) -> T:
            if piece.by_view and session_version(connection) != self._loader.catalogue.version:
                raise _SchemaUpgraded
            return action(connection)

        return load_transaction(self._loader.engine, run)

    def _insert(self, piece: Batch, connection: Connection) -> Inserted:
        """Insert some of the rows of a batch, of which no message is complete yet."""
        inserted = insert_batch(connection, piece, bool(self._report))
        if self._audit is not None:
            nothing = self._audit.of_part(0, 0)
            write_audit(connection, nothing, inserted.counts, inserted.accepted, Counter())
        return inserted

    def _finish(
        self, batch: Batch, earlier: Sequence[Inserted], connection: Connection
    ) -> tuple[Commit, Ration | None]:
        """Insert the last rows of a batch, and store all failures."""
        loader, end = self._loader, self._done + batch.size
        inserted = insert_batch(connection, batch, bool(self._report))
        parts = [*earlier, inserted]
        failures = [failure for part in parts for failure in part.failures]
        if not loader.parks:
            refuse_broken_class(failures)
        if loader.authority is not None:
            name_publishers(connection, loader.authority.new_names(inserted.accepted))
        used, letters = None, StoredLetters()
        if failures:
            brokers = self._audit.brokers if self._audit else [""] * len(self._messages)
            by_message = dict(zip(map(id, self._messages), brokers, strict=False))

            def source_of(message: Message) -> str:
                return by_message[id(message)]

            if loader.quota:
                loader.quota.budget.measure_if_due(connection)
                used = loader.quota.begin(self._now, source_of)
            letters = store_dead_letters(connection, failures, self._now, source_of, used)
        counts = Counts()
        for some in (inserted.counts, letters.counts, batch.counts):
            counts += some
        if self._audit is not None:
            refused = Counter(batch.observed)
            for failure in failures:
                refused[identity_of(failure.message)] += failure.records
            audit = self._audit.of_part(self._done, end)
            write_audit(connection, audit, counts, inserted.accepted, refused)
        reports = self._reports(range(self._done, end), parts, failures)
        return Commit(counts, letters.letters, batch.records, reports), used

    def _reports(
        self, positions: range, parts: Sequence[Inserted], failures: Sequence[RecordFailure]
    ) -> dict[int, MessageReport]:
        """What became of messages that were inserted in these parts, by position."""
        reports = {at: MessageReport() for at in self._report if at in positions}
        by_message = {id(self._messages[at]): report for at, report in reports.items()}
        for part in parts:
            for key in part.rows_by_message.keys() & by_message.keys():
                by_message[key].rows += part.rows_by_message[key]
                by_message[key].duplicates += part.duplicates_by_message[key]
        mine = [failure for failure in failures if id(failure.message) in by_message]
        for failure in collapsed(mine):
            by_message[id(failure.message)].failures.append(failure)
        return reports


def refuse_broken_class(failures: Iterable[RecordFailure]) -> None:
    """Make sure that the class works, where nobody would wait until it is repaired.

    Raises:
        DatabaseRefused, ConfigError: raised inside the transaction, to roll it back.
    """
    for failure in failures:
        if failure.reason == CLASS_BROKEN:
            is_denied = f": {PERMISSION_DENIED}: " in failure.text
            message = f"{failure.text}: fix it (see sam-db check), then repeat the command"
            raise DatabaseRefused(message) if is_denied else ConfigError([message])


def decode_batch(
    catalogue: Classes,
    messages: Sequence[Message],
    now: datetime,
    limits: Limits,
    poison: Collection[str] = (),
    max_records: int = sys.maxsize,
) -> Batch:
    """The messages decoded for the views of their classes; one whose id is in `poison` fails.

    They are the first ones with at most `max_records` records together, or a single one with more.
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
            batch.counts.checks += 1
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
            records += count
            if records > max_records and batch.size:
                break
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
                batch.counts.ignored_keys.update(decoded.ignored)
        batch.size += 1
    return batch


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
