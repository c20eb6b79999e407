"""Replaying dead letters: loaded as if they came now; those that fail again stay, with the reason.

Each transaction locks some letters, checks that they are still open, loads them as one batch and
stores what became of each. So a replay may be repeated, stopped at any moment, and run by two at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Engine, bindparam, text

from sam_pipeline.schema.chunks import chunks
from sam_pipeline.schema.messages.decode import WHOLE
from sam_pipeline.schema.messages.message import CLASS, COUNT, MESSAGE_ID, Message
from sam_pipeline.schema.records.classes import folded
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.transaction import load_transaction
from sam_pipeline.sql.loading.batch import CLASS_BROKEN, RecordFailure, read_batch
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.dead_letter import (
    OPEN,
    REPLAYED,
    DeadLetter,
    DeadLetterContent,
    keep,
    lock_dead_letters,
    printable,
    stored_time,
)
from sam_pipeline.sql.loading.insert import insert_batch

LOADED, FAILED, SKIPPED = "loaded", "failed", "skipped"

MOST_LETTERS = 500
MOST_BYTES = 1024 * 1024
"""The limits on one transaction; a larger letter has one for itself."""

PARKED_LETTERS = 200
PARKED_BYTES = 256 * 1024
"""This much delays a loader's next batch by a tenth of a second or two."""

ATTEMPTS = 40
"""How often one transaction tries parts of a batch to find a letter that breaks a whole class."""

_SIZES = text("""
    SELECT dead_letter_id, length(body) FROM dead_letter
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
    SELECT dead_letter_id FROM dead_letter WHERE {_PARKED} ORDER BY dead_letter_id LIMIT :most
""").bindparams(bindparam("names", expanding=True))
_PARKED_LAST = text(f"""
    SELECT dead_letter_id FROM dead_letter WHERE {_PARKED} ORDER BY dead_letter_id DESC LIMIT 1
""").bindparams(bindparam("names", expanding=True))


@dataclass(frozen=True)
class Replayed:
    """What became of a letter.

    `outcome`: loaded; failed, and still open for `reason`; or skipped, because its `state` was
    replayed or dropped before. If a whole message was loaded, its records that failed are new
    letters.
    """

    dead_letter_id: int
    outcome: str
    state: str
    reason: str
    error: str
    new_dead_letters: int = 0

    @property
    def all_loaded(self) -> bool:
        return self.state == REPLAYED and not self.new_dead_letters


@dataclass(frozen=True)
class Parked:
    """How many parked letters were `loaded`, and whether there were `any`."""

    loaded: int
    any: bool


def replay_dead_letters(
    engine: Engine,
    ids: Sequence[int],
    now: Callable[[], datetime],
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
) -> Iterator[Replayed]:
    """Load letters again; what is yielded is committed. Unknown numbers are skipped.

    Raises:
        DatabaseAway: what was yielded before stays done.
    """
    catalogue = Catalogue(engine)
    for chunk in _chunks(engine, sorted(set(ids)), MOST_BYTES):
        yield from _replay_chunk(engine, catalogue, chunk, now(), limits)


def replay_parked(
    engine: Engine,
    now: Callable[[], datetime],
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
) -> Parked:
    """Load some letters that were parked as class-broken, of one class whose view works again.

    For a loader, between two batches: it waits for nobody. Unknown classes are left to people: a
    name that never was a class may become a view with quite another meaning.

    Raises:
        DatabaseAway
    """

    def load(ids: Sequence[int]) -> int:
        """How many of them need no further attempt."""
        done = _replay_chunk(engine, catalogue, ids, now(), limits, skip_locked=True)
        return sum(one.outcome == LOADED or one.reason != CLASS_BROKEN for one in done)

    with reading(engine) as connection:
        parked = connection.execute(_PARKED_CLASSES).scalars().all()
    catalogue = Catalogue(engine)
    for class_name, spellings in groupby(sorted(parked, key=folded), folded):
        view = catalogue.find(class_name)
        if view is None or view.problem:
            continue
        bound = {"names": list(spellings), "most": PARKED_LETTERS}
        with reading(engine) as connection:
            ids = connection.execute(_PARKED_IDS, bound).scalars().all()
            newest = connection.execute(_PARKED_LAST, bound).scalars().all()
        # A class that refuses its oldest and its newest letter is still broken.
        loaded = load(ids[:1]) or load(newest)
        if loaded:
            more = load(next(_chunks(engine, ids, PARKED_BYTES), []))
            return Parked(loaded + more, any=True)
    return Parked(0, any=bool(parked))


def _chunks(engine: Engine, ids: Sequence[int], most_bytes: int) -> Iterator[list[int]]:
    """The existing letters, in portions for one transaction each."""

    def sizes() -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(ids), MOST_LETTERS):
            with reading(engine) as connection:
                some = {"ids": ids[start : start + MOST_LETTERS]}
                rows = connection.execute(_SIZES, some).all()
            yield from map(tuple, rows)

    for chunk in chunks(sizes(), lambda pair: pair[1], MOST_LETTERS, most_bytes):
        yield [number for number, _ in chunk]


def _replay_chunk(
    engine: Engine,
    catalogue: Catalogue,
    ids: Sequence[int],
    now: datetime,
    limits: Limits,
    skip_locked: bool = False,
) -> list[Replayed]:
    """One transaction."""
    if not ids:
        return []
    catalogue.forget()  # the view may have been repaired since

    def action(connection: Connection) -> list[Replayed]:
        contents = lock_dead_letters(connection, ids, skip_locked)
        attempt = _Attempt(connection, catalogue, now, limits)
        done = attempt.replay([one for one in contents if one.letter.state == OPEN])
        for letter in [one.letter for one in contents if one.letter.state != OPEN]:
            skipped = (SKIPPED, letter.state, letter.reason, letter.error)
            done.append(Replayed(letter.dead_letter_id, *skipped))
        return sorted(done, key=lambda one: one.dead_letter_id)

    return load_transaction(engine, action)


@dataclass
class _Attempt:
    """Loads letters that are open and locked, in the caller's transaction."""

    connection: Connection
    catalogue: Catalogue
    now: datetime
    limits: Limits
    attempts: int = ATTEMPTS

    def replay(self, contents: Sequence[DeadLetterContent]) -> list[Replayed]:
        pairs: list[tuple[Message, DeadLetter]] = []
        for content in contents:
            letter = content.letter
            headers = {**content.headers, MESSAGE_ID: letter.message_id}
            if letter.message_class:
                headers.setdefault(CLASS, letter.message_class)
            if letter.record_number != WHOLE:
                headers.pop(COUNT, None)  # it counts the records of the original message
            pairs.append((Message(headers, content.body), letter))
        failures: dict[int, list[RecordFailure]] = {}
        for failure in self._store([message for message, _ in pairs]):
            failures.setdefault(id(failure.message), []).append(failure)
        now = stored_time(self.connection, self.now)
        done, loaded, failed = [], [], []
        # In the order in which loaders store dead letters, too.
        for message, letter in sorted(pairs, key=lambda pair: pair[0].message_id):
            number, refused = letter.dead_letter_id, failures.get(id(message), [])
            new: Mapping[str, int] = {}
            if letter.record_number == WHOLE:
                records = [failure for failure in refused if failure.number != WHOLE]
                new = keep(self.connection, records, self.now)
                refused = [failure for failure in refused if failure.number == WHOLE]
            if refused:
                reason, error = refused[0].reason, printable(refused[0].text)
                done.append(Replayed(number, FAILED, OPEN, reason, error))
                failed.append({"id": number, "reason": reason, "error": error, "now": now})
            else:
                facts = (LOADED, REPLAYED, letter.reason, letter.error)
                done.append(Replayed(number, *facts, sum(new.values())))
                loaded.append(number)
        if loaded:
            self.connection.execute(_REPLAYED, {"ids": loaded, "now": now})
        if failed:
            self.connection.execute(_FAILED, failed)
        return done

    def _store(self, messages: Sequence[Message]) -> list[RecordFailure]:
        """Store the messages; those that failed.

        A message whose own record makes the class look broken is found by halving, so that the
        others are loaded; with a limit, because the class may indeed be broken.
        """
        if not messages:
            return []
        self.attempts -= 1
        batch = read_batch(self.catalogue, messages, self.now, self.limits)
        failures = insert_batch(self.connection, batch).failures
        without_view = {id(failure.message) for failure in batch.failures}
        broken: list[RecordFailure] = []
        others: list[RecordFailure] = []
        for failure in failures:
            tried = failure.reason == CLASS_BROKEN and id(failure.message) not in without_view
            (broken if tried else others).append(failure)
        if len(broken) < 2 or self.attempts <= 0:
            return failures
        again = [failure.message for failure in broken]
        half = len(again) // 2
        return [*others, *self._store(again[:half]), *self._store(again[half:])]
