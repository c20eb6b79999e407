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

import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection, Engine, column, insert, table

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.identity import identity_of
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.decode import CachedDecoder, Decoded
from sam_pipeline.schema.messages.message import CLASS, Message
from sam_pipeline.schema.messages.refused import REFUSED, refusal_of
from sam_pipeline.schema.records.classes import CHECK_CLASS, SERVICE_ENDPOINT, built_in, folded
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.database.engine import SESSION_VERSION, load_transaction, reading
from sam_pipeline.sql.errors import (
    PERMISSION_DENIED,
    DatabaseAway,
    DatabaseExhausted,
    DatabaseRefused,
    Kind,
    kind_of,
)
from sam_pipeline.sql.loading.authorise import Authority, RecentRecords, name_publishers
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


@dataclass(frozen=True)
class Audit:
    """The process that loads some messages, and the broker (or file) of each."""

    consumer: str
    host: str
    process_id: int
    brokers: Sequence[str]


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


@dataclass
class Loading:
    """Some messages on their way into the database; they are complete when none is pending.

    Messages whose ids are in `poison` become dead letters without being decoded. With an `audit`
    each transaction adds a row to `load_audit`, and dead letters name the broker. `report`: the
    positions of the messages to report on, each of them an object of its own.
    """

    loader: Loader
    messages: Sequence[Message]
    now: datetime
    audit: Audit | None = None
    poison: Collection[str] = ()
    report: Collection[int] = ()
    _done: int = field(default=0, init=False)
    """The messages before this position are complete."""
    _stops: list[int] = field(default_factory=list, init=False)
    """The positions up to which the next transactions store; the next one is last."""

    @property
    def is_pending(self) -> bool:
        """Whether there are messages that are not complete."""
        return self._done < len(self.messages)

    def decode(self) -> Batch:
        """The next messages, decoded: as many as one transaction may store, or a single one."""
        while self._stops and self._stops[-1] <= self._done:
            self._stops.pop()
        stop = min([self._done + MAX_RECORDS, *self._stops[-1:]])
        messages, loader = self.messages[self._done : stop], self.loader
        return decode_batch(
            loader.catalogue, messages, self.now, loader.limits, self.poison, MAX_RECORDS
        )

    def store(self, batch: Batch) -> Iterator[Commit]:
        """Store the batch that was decoded last; what each transaction has stored.

        The messages of a batch that is too large for the server, or for whose columns the schema
        has changed, are still pending afterwards.

        Raises:
            DatabaseAway: not everything was committed; load all of it again later.
            LettersFull: the same, but without the messages that it names.
        """
        loader = self.loader
        if loader.authority is not None:
            loader.authority.judge(batch, self.now, partial(reading, loader.engine))
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

        def insert_piece(piece: Batch, connection: Connection) -> Inserted:
            """Insert some of the rows, of which no message is complete yet."""
            part = insert_batch(connection, piece, bool(self.report))
            self._write_audit(connection, slice(0), part.counts, part.accepted, Counter())
            return part

        loader, inserted = self.loader, list[Inserted]()
        *pieces, last = split_batch(batch)
        for piece in pieces:
            yield from self._partitions(piece)
            inserted.append(self._transaction(piece, insert_piece))
            yield Commit(inserted[-1].counts)
        yield from self._partitions(last)
        commit, used = self._transaction(last, partial(self._finish, inserted))
        if used:
            used.commit()
        if loader.recent is not None:
            loader.recent.add(batch)
        yield commit

    def _partitions(self, piece: Batch) -> Iterator[Commit]:
        """Create the partitions that the rows need."""
        try:
            if self.loader.catalogue.partitions.make(piece.days):
                yield Commit()
        except DatabaseAway as error:
            if isinstance(error.__cause__, Exception) and kind_of(error.__cause__) is Kind.RETRY:
                raise
            # The table or a grant is broken, which the insert attributes to the class.

    def _transaction(self, piece: Batch, action: Callable[[Batch, Connection], T]) -> T:
        def run(connection: Connection) -> T:
            version = self.loader.catalogue.version
            if piece.by_view and connection.info.get(SESSION_VERSION) != version:
                raise _SchemaUpgraded
            return action(piece, connection)

        return load_transaction(self.loader.engine, run)

    def _finish(
        self, earlier: Sequence[Inserted], batch: Batch, connection: Connection
    ) -> tuple[Commit, Ration | None]:
        """Insert the last rows of a batch, and store all failures."""
        loader, positions = self.loader, range(self._done, self._done + batch.size)
        inserted = insert_batch(connection, batch, bool(self.report))
        parts = [*earlier, inserted]
        failures = [failure for part in parts for failure in part.failures]
        if not loader.parks:
            refuse_broken_class(failures)
        if loader.authority is not None:
            name_publishers(connection, loader.authority.new_names(inserted.accepted))
        used, letters = None, StoredLetters()
        if failures:
            brokers = self.audit.brokers if self.audit else [""] * len(self.messages)
            broker_of = dict(zip(map(id, self.messages), brokers, strict=False))

            def source_of(message: Message) -> str:
                return broker_of[id(message)]

            if loader.quota:
                loader.quota.budget.measure_if_due(connection)
                used = loader.quota.begin(self.now, source_of)
            letters = store_dead_letters(connection, failures, self.now, source_of, used)
        counts = Counts()
        for some in (inserted.counts, letters.counts, batch.counts):
            counts += some
        refused = Counter(batch.observed)
        for failure in failures:
            refused[identity_of(failure.message)] += failure.records
        complete = slice(positions.start, positions.stop)
        self._write_audit(connection, complete, counts, inserted.accepted, refused)
        reports = {at: MessageReport() for at in self.report if at in positions}
        if reports:
            by_message = {id(self.messages[at]): report for at, report in reports.items()}
            for part in parts:
                for key in part.rows_by_message.keys() & by_message.keys():
                    by_message[key].rows += part.rows_by_message[key]
                    by_message[key].duplicates += part.duplicates_by_message[key]
            for failure in collapsed(f for f in failures if id(f.message) in by_message):
                by_message[id(failure.message)].failures.append(failure)
        return Commit(counts, letters.letters, batch.records, reports), used

    def _write_audit(
        self,
        connection: Connection,
        complete: slice,
        counts: Counts,
        accepted: Counter[str],
        refused: Counter[str],
    ) -> None:
        """Insert a row in the caller's transaction: it exists if and only if the rows do.

        `complete`: the messages that are; `accepted` and `refused`: the records by identity.
        """
        if self.audit is None:
            return
        brokers = self.audit.brokers[complete]
        publishers = {
            identity: (accepted[identity], refused[identity])
            for identity in sorted({*+accepted, *refused})
        }
        values = {
            "consumer": self.audit.consumer,
            "host": self.audit.host,
            "process_id": self.audit.process_id,
            "brokers": json.dumps(Counter(brokers)),
            "publishers": json.dumps(publishers),
            "messages": len(brokers),
            "rows": counts.rows,
            "duplicates": counts.duplicates,
            "dead_letters": counts.dead_letters.total(),
            "repeated_dead_letters": counts.repeated_dead_letters,
            "summarised_dead_letters": counts.summarised_dead_letters,
            "checks": counts.checks,
        }
        # The database fills in the time and the login.
        connection.execute(insert(table("loaded_batch", *map(column, values))), values)


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
    names = [folded(message.headers.get(CLASS, "")) for message in messages]
    views = catalogue.find_all({*names} - {CHECK_CLASS})
    decoders: dict[str, CachedDecoder] = {}
    decoded: list[tuple[ClassView, Message, Decoded]] = []
    for message, name in zip(messages, names, strict=True):
        view = views.get(name)
        if poison and message.message_id in poison:
            batch.failures.append(whole_message(message, POISON, POISON_TEXT))
        elif REFUSED in message.headers and (refusal := refusal_of(message)):
            batch.failures.append(whole_message(message, refusal.reason, refusal.text))
        elif name == CHECK_CLASS:
            batch.counts.checks += 1
        elif view is None or view.problem:
            class_name, reason = message.message_class, CLASS_BROKEN
            if view is not None:
                text = f"{class_name}: {view.problem}"
            elif built_in(class_name):
                missing = "the view or its INSTEAD OF INSERT trigger is missing (sam-db check)"
                text = f"{class_name}: {missing}"
            else:
                reason, text = UNKNOWN_CLASS, "the message names no class"
                if class_name is not None:
                    text = f"{class_name[:80]}: no view of that name with a trigger"
            batch.failures.append(whole_message(message, reason, text))
        else:
            if name not in decoders:
                decoders[name] = CachedDecoder(view.columns, now, limits, view.times)
            contents = decoders[name].decode(message)
            records += len(contents.rows)
            if contents.bad:
                records += sum(refused.records for refused in contents.bad)
            if records > max_records and batch.size:
                break
            decoded.append((view, message, contents))
        batch.size += 1
    ids = [message.message_id for _, message, _ in decoded]  # of foreign messages hashes
    publishers = [identity_of(message) for _, message, _ in decoded]
    for (view, message, contents), message_id, publisher in zip(
        decoded, ids, publishers, strict=True
    ):
        part = batch.by_view.get(view.name)
        if part is None:
            part = batch.by_view[view.name] = ViewBatch(view)
        part.messages.append(message)
        for row in contents.rows:
            if FILE in message.headers and SOURCE in view.statement_columns:
                row = row._replace(values={**row.values, SOURCE: "file"})
            part.rows.append(PendingRow(message, message_id, publisher, row))
        for refused in contents.bad:
            part.failures.append(RecordFailure(message, *refused))
        if contents.ignored:
            batch.counts.ignored_keys.update(contents.ignored)
    return batch
