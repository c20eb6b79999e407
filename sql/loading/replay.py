"""Replaying dead letters: loading them as if they arrived now; failures stay, with a new reason.

Each transaction locks some letters, checks that they are still open, loads them as one batch and
stores the outcome of each. So a replay may be repeated, stopped at any moment, and run twice at the
same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Engine, bindparam, text

from sam_pipeline.schema.identity.policy import UNSIGNED
from sam_pipeline.schema.messages.decode import WHOLE
from sam_pipeline.schema.messages.message import CLASS, COUNT, MESSAGE_ID, Message, chunks
from sam_pipeline.schema.messages.refused import BAD_SIGNATURE, MARKS, SIGNATURE_EXPIRED
from sam_pipeline.schema.records.classes import folded
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.database.engine import load_transaction, reading
from sam_pipeline.sql.database.operations import record_operation
from sam_pipeline.sql.loading.authorise import Authority
from sam_pipeline.sql.loading.batch import (
    CLASS_BROKEN,
    FLOOD,
    Batch,
    RecordFailure,
    split_batch,
)
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.insert import insert_batch
from sam_pipeline.sql.loading.letters.dead_letter import (
    OPEN,
    REPLAYED,
    SUMMARY_ONLY,
    DeadLetter,
    DeadLetterContent,
    lock_dead_letters,
    storable,
    stored_time,
)
from sam_pipeline.sql.loading.letters.store import collapsed, letters_of, store_dead_letters
from sam_pipeline.sql.loading.load import Loader, decode_batch

LOADED, REPLACED, FAILED, SKIPPED = "loaded", "replaced", "failed", "skipped"

MAX_LETTERS = 500
MAX_BYTES = 1024 * 1024
"""The limits on one transaction; a larger letter has one of its own."""

PARKED_LETTERS = 200
PARKED_BYTES = 256 * 1024
"""The limits between two batches: they delay the next batch by 0.1 to 0.2 s."""

SIGNATURE_REASONS = frozenset({UNSIGNED, BAD_SIGNATURE, SIGNATURE_EXPIRED})
"""The reasons of messages whose signatures are verified again."""

ATTEMPTS = 40
"""The parts of a batch that one transaction tries in search of a letter that breaks its class."""

_SIZES = text("""
    SELECT dead_letter_id, body_bytes FROM dead_letter
    WHERE dead_letter_id IN :ids
    ORDER BY dead_letter_id
""").bindparams(bindparam("ids", expanding=True))
_REPLAYED = text("""
    UPDATE dead_letter SET state = 'replayed', changed_at = :now WHERE dead_letter_id IN :ids
""").bindparams(bindparam("ids", expanding=True))
_FAILED = text("""
    UPDATE dead_letter SET reason = :reason, error = :error, changed_at = :now
    WHERE dead_letter_id = :id
""")
_PARKED_CLASSES = text("""
    SELECT DISTINCT message_class FROM dead_letter
    WHERE state = 'open' AND reason = 'class-broken'
""")
_PARKED = "state = 'open' AND reason = 'class-broken' AND message_class IN :names"
_PARKED_IDS = text(f"""
    SELECT dead_letter_id FROM dead_letter WHERE {_PARKED} ORDER BY dead_letter_id LIMIT :limit
""").bindparams(bindparam("names", expanding=True))
_PARKED_LAST = text(f"""
    SELECT dead_letter_id FROM dead_letter WHERE {_PARKED} ORDER BY dead_letter_id DESC LIMIT 1
""").bindparams(bindparam("names", expanding=True))


@dataclass(frozen=True)
class Replayed:
    """The outcome for one letter.

    `outcome`: loaded; replaced by the `dead_letters` of its bad records, while the others are rows;
    failed, and still open for `reason`; or skipped, because its `state` was replayed or dropped
    before. If more than 20 records of a message are bad, its letter has failed.
    """

    dead_letter_id: int
    outcome: str
    state: str
    reason: str
    error: str
    dead_letters: tuple[int, ...] = ()

    @property
    def all_loaded(self) -> bool:
        """Whether all records of the letter became rows, now or before."""
        return self.state == REPLAYED and not self.dead_letters


@dataclass(frozen=True)
class Parked:
    """How many parked letters of a class were `loaded`, and whether there were `any` of a class."""

    loaded: int
    any: bool
    message_class: str = ""


def replay_dead_letters(
    engine: Engine,
    ids: Sequence[int],
    now: Callable[[], datetime],
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
    authority: Authority | None = None,
) -> Iterator[Replayed]:
    """Load letters again; each outcome is committed when it is yielded. Unknown ids are skipped.

    Raises:
        DatabaseAway: the outcomes already yielded stay committed.
    """
    loader = Loader(engine, Catalogue(engine), limits, authority)
    for portion in _portions(engine, sorted(set(ids)), MAX_BYTES):
        yield from _replay_portion(loader, portion, now())


def replay_parked(
    engine: Engine,
    now: Callable[[], datetime],
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
    authority: Authority | None = None,
) -> Parked:
    """Load some letters that were parked as class-broken, of one class whose view works again.

    For a loader between two batches: it waits for no lock. Letters of unknown classes are left to
    people, since a view that is created under such a name may be meant for other data. Raises
    DatabaseAway.
    """

    def load(ids: Sequence[int]) -> int:
        """How many of them need no further attempt."""
        return sum(
            outcome.outcome in (LOADED, REPLACED) or outcome.reason != CLASS_BROKEN
            for outcome in _replay_portion(loader, ids, now(), skip_locked=True)
        )

    with reading(engine) as connection:
        class_names = connection.execute(_PARKED_CLASSES).scalars().all()
    if not class_names:
        return Parked(0, any=False)
    loader = Loader(engine, Catalogue(engine), limits, authority)
    for class_name, spellings in groupby(sorted(class_names, key=folded), folded):
        view = loader.catalogue.find(class_name)
        if view is None or view.problem:
            continue
        names = list(spellings)
        bound = {"names": names, "limit": PARKED_LETTERS}
        with reading(engine) as connection:
            ids = connection.execute(_PARKED_IDS, bound).scalars().all()
            newest = connection.execute(_PARKED_LAST, bound).scalars().all()
        # A class that refuses its oldest and its newest letter is still broken.
        loaded = load(ids[:1]) or load(newest)
        if loaded:
            loaded += load(next(_portions(engine, ids, PARKED_BYTES), []))
            return Parked(loaded, any=True, message_class=names[0])
    return Parked(0, any=True)


def _portions(engine: Engine, ids: Sequence[int], max_bytes: int) -> Iterator[list[int]]:
    """The ids of existing letters, in lists for one transaction each."""

    def sizes() -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(ids), MAX_LETTERS):
            with reading(engine) as connection:
                portion = {"ids": ids[start : start + MAX_LETTERS]}
                rows = connection.execute(_SIZES, portion).all()
            yield from map(tuple, rows)

    for portion in chunks(sizes(), lambda pair: pair[1], MAX_LETTERS, max_bytes):
        yield [dead_letter_id for dead_letter_id, _ in portion]


def _replay_portion(
    loader: Loader, ids: Sequence[int], now: datetime, skip_locked: bool = False
) -> list[Replayed]:
    """Load letters again in one transaction.

    If they have more records or days than it may store, each half has a transaction of its own; the
    rows of a single letter are stored piece by piece before the transaction that settles it.
    """
    if not ids:
        return []
    loader.catalogue.forget()  # the view may have been repaired since
    if loader.authority is not None:
        loader.authority.forget()
    rest: tuple[Batch, list[RecordFailure]] | None = None

    def action(connection: Connection) -> list[Replayed]:
        contents = lock_dead_letters(connection, ids, skip_locked)
        attempt = _Attempt(connection, loader, now, rest)
        outcomes, open_letters = [], []
        for item in contents:
            letter = item.letter
            if letter.state != OPEN:
                skipped = (SKIPPED, letter.state, letter.reason, letter.error)
                outcomes.append(Replayed(letter.dead_letter_id, *skipped))
            elif letter.reason == FLOOD:
                failed = (FAILED, OPEN, FLOOD, SUMMARY_ONLY)
                outcomes.append(Replayed(letter.dead_letter_id, *failed))
            else:
                open_letters.append(item)
        outcomes += attempt.replay(open_letters)
        if open_letters and not skip_locked:  # not by the daemon
            numbers = ", ".join(str(item.letter.dead_letter_id) for item in open_letters)
            record_operation(connection, "dead-letter replay", {"ids": numbers})
        return sorted(outcomes, key=lambda outcome: outcome.dead_letter_id)

    try:
        return load_transaction(loader.engine, action)
    except _TooLarge as too_large:
        if len(ids) > 1:
            half = len(ids) // 2
            return [
                *_replay_portion(loader, ids[:half], now, skip_locked),
                *_replay_portion(loader, ids[half:], now, skip_locked),
            ]
        *pieces, last = too_large.pieces
    failures: list[RecordFailure] = []

    def insert_piece(piece: Batch, connection: Connection) -> Sequence[RecordFailure]:
        contents = lock_dead_letters(connection, ids, skip_locked)
        is_open = bool(contents) and contents[0].letter.state == OPEN
        return insert_batch(connection, piece).failures if is_open else ()

    for piece in pieces:
        loader.catalogue.partitions.make(piece.days)
        failures += load_transaction(loader.engine, partial(insert_piece, piece))
    rest = (last, failures)
    return load_transaction(loader.engine, action)


class _TooLarge(Exception):
    """The letters have too many records or days for one transaction, but not for `pieces`."""

    def __init__(self, pieces: Sequence[Batch]) -> None:
        super().__init__()
        self.pieces = pieces


@dataclass
class _Attempt:
    """Loads open and locked letters in the caller's transaction.

    `rest`: the records of a single letter that are not stored yet, and the failures of the others.
    """

    connection: Connection
    loader: Loader
    now: datetime
    rest: tuple[Batch, list[RecordFailure]] | None
    attempts_left: int = ATTEMPTS

    def replay(self, contents: Sequence[DeadLetterContent]) -> list[Replayed]:
        """Load the letters, and store the outcome of each."""
        authority, pairs = self.loader.authority, list[tuple[Message, DeadLetter]]()
        for content in contents:
            letter, message = content.letter, Message(content.headers, content.body)
            if letter.reason in SIGNATURE_REASONS and letter.edited_from is None:
                unmarked = {k: value for k, value in message.headers.items() if k not in MARKS}
                message = Message(unmarked, message.body)
                if authority is not None:  # the signature is verified again
                    message = authority.verified(message, letter.received_at)
            headers = {**message.headers, MESSAGE_ID: letter.message_id}
            if letter.message_class:
                headers.setdefault(CLASS, letter.message_class)
            if letter.record_number != WHOLE:
                headers.pop(COUNT, None)  # it counts the records of the original message
            pairs.append((Message(headers, content.body), letter))
        brokers = {id(message): letter.broker or "" for message, letter in pairs}

        def broker_of(message: Message) -> str:
            return brokers[id(message)]

        failures: dict[int, list[RecordFailure]] = {}
        for failure in collapsed(self._load([message for message, _ in pairs])):
            failures.setdefault(id(failure.message), []).append(failure)
        now = stored_time(self.connection, self.now)
        outcomes, loaded, failed = [], [], []
        # In the order in which loaders also store dead letters.
        for message, letter in sorted(pairs, key=lambda pair: pair[0].message_id):
            number, refused = letter.dead_letter_id, failures.get(id(message), [])
            replacing: tuple[int, ...] = ()
            if letter.record_number == WHOLE:
                # If there are too many, one failure stands for all: this letter stays open.
                records = [failure for failure in refused if failure.number != WHOLE]
                store_dead_letters(self.connection, records, self.now, broker_of)
                replacing = letters_of(self.connection, records)
                refused = [failure for failure in refused if failure.number == WHOLE]
            if refused:
                reason, error = refused[0].reason, storable(refused[0].text)
                outcomes.append(Replayed(number, FAILED, OPEN, reason, error))
                failed.append({"id": number, "reason": reason, "error": error, "now": now})
            else:
                outcome = REPLACED if replacing else LOADED
                facts = (outcome, REPLAYED, letter.reason, letter.error)
                outcomes.append(Replayed(number, *facts, replacing))
                loaded.append(number)
        if loaded:
            self.connection.execute(_REPLAYED, {"ids": loaded, "now": now})
        if failed:
            self.connection.execute(_FAILED, failed)
        return outcomes

    def _load(self, messages: Sequence[Message]) -> list[RecordFailure]:
        """Insert the messages; returns the failures, or raises _TooLarge.

        If the class looks broken, one message may be the cause. Halving finds it, so that the
        others are loaded; the number of attempts is limited, as the class may indeed be broken.
        """
        if not messages:
            return []
        if self.rest is not None:
            last, earlier = self.rest
            failures = [*earlier, *insert_batch(self.connection, last).failures]
            [message] = messages
            return [replace(failure, message=message) for failure in failures]
        self.attempts_left -= 1
        loader = self.loader
        batch = decode_batch(loader.catalogue, messages, self.now, loader.limits)
        if loader.authority is not None:
            loader.authority.judge(batch, self.now, lambda: nullcontext(self.connection))
        pieces = split_batch(batch)
        if len(pieces) > 1:
            raise _TooLarge(pieces)
        failures = insert_batch(self.connection, batch).failures
        without_view = {id(failure.message) for failure in batch.failures}
        broken: list[RecordFailure] = []
        others: list[RecordFailure] = []
        for failure in failures:
            has_view = id(failure.message) not in without_view
            (broken if failure.reason == CLASS_BROKEN and has_view else others).append(failure)
        if len(broken) < 2 or self.attempts_left <= 0:
            return failures
        again = [failure.message for failure in broken]
        half = len(again) // 2
        return [*others, *self._load(again[:half]), *self._load(again[half:])]
