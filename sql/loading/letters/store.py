"""Storing dead letters, in bulk and within the limits on senders, and editing one.

The key of a letter has a digest of its body, because senders choose message ids: other bytes under
a known id are another letter, and the same bytes are stored once.

An edited letter is a new one, whose key extends that of the old one, which it replaces. The old
letter is dropped but keeps its bytes. So a loader needs no right to change bytes or headers, and no
data that was sent is ever lost.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, LargeBinary, bindparam, column, table, text
from sqlalchemy.dialects import postgresql, sqlite

from sam_pipeline.schema.identity.identity import (
    IDENTITY,
    identity_of,
    known_identity,
    operator_identity,
    with_identity,
)
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.decode import MOST_REFUSED, WHOLE
from sam_pipeline.schema.messages.message import (
    CLASS,
    COUNT,
    Message,
    Origin,
    chunks,
    claimed_origin,
)
from sam_pipeline.schema.messages.refused import MARKS, REFUSED, REFUSED_TEXT, TOO_LARGE
from sam_pipeline.schema.program.wording import printable
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.database.operations import login_name, record_operation
from sam_pipeline.sql.errors import EditRefused
from sam_pipeline.sql.loading.batch import FLOOD, MIXED, RecordFailure
from sam_pipeline.sql.loading.letters.dead_letter import (
    EDITION,
    OPEN,
    SUMMARY_ONLY,
    DeadLetterContent,
    edition_id,
    lock_dead_letters,
    single_letter,
    storable,
    stored_body,
    stored_time,
)
from sam_pipeline.sql.loading.letters.quota import (
    SUMMARY,
    FloodSummary,
    LettersFull,
    Ration,
    Sender,
    sender_of,
)

LONGEST_ID = 255
"""Characters of a message id that fit into an index; a longer id is replaced by its hash."""
LONGEST_TEXT = 300
"""Characters of the error of one record among many."""

UNKNOWN = Sender("", "")

MAX_LETTERS = 500
MAX_BYTES = 1024 * 1024
"""The limits on one statement."""

_KEY = ("message_id", "record_number", "body_digest")
_LETTER = table(
    "dead_letter",
    *map(column, (*_KEY, "message_class", "reason", "error", "broker", "login", "publisher_id")),
    *map(column, ("claimed_host", "claimed_program", "claimed_user", "headers")),
    column("body", LargeBinary),
    *map(column, ("body_bytes", "compressed", "received_at", "changed_at", "dead_letter_id")),
)
_KEPT = (
    *("record_number", "reason", "error", "broker", "login"),
    *("claimed_host", "claimed_program", "claimed_user"),
)
"""The columns of an edited letter that stay; `reason` and `error` until it is replayed."""
_INSERTS = {
    name: insert(_LETTER)
    .on_conflict_do_nothing(index_elements=_KEY)
    .returning(*(_LETTER.c[name] for name in (*_KEY, "dead_letter_id")))
    for name, insert in (("postgresql", postgresql.insert), ("sqlite", sqlite.insert))
}
_BY_KEY = " AND ".join(f"{name} = :{name}" for name in _KEY)
_ID = text(f"SELECT dead_letter_id FROM dead_letter WHERE {_BY_KEY}")
_SUMMARY = f"SELECT error FROM dead_letter WHERE {_BY_KEY}"
_SUMMARIES = {"sqlite": text(_SUMMARY), "postgresql": text(f"{_SUMMARY} FOR UPDATE")}
# It is open again if someone has dropped it meanwhile.
_UPDATE_SUMMARY = text(f"""
    UPDATE dead_letter SET error = :error, state = 'open', changed_at = :changed_at
    WHERE {_BY_KEY}
""")
_DROP = text("""
    UPDATE dead_letter SET state = 'dropped', changed_at = :now WHERE dead_letter_id = :id
""")
_MAKE_PUBLISHERS = text("SELECT make_publishers(CAST(:identities AS text[]))")
_MAKE_PUBLISHER = text("""
    INSERT INTO publisher (identity, name) VALUES (:identity, :identity)
    ON CONFLICT (identity) DO NOTHING
""")
_PUBLISHERS = text(
    "SELECT identity, publisher_id FROM publisher WHERE identity IN :identities"
).bindparams(bindparam("identities", expanding=True))


class NewLetter(NamedTuple):
    """A failure that was stored as a new dead letter, or only counted in a summary."""

    reason: str
    message_class: str
    message_id: str
    error: str
    sender: Sender
    identity: str = ""
    """Empty for an anonymous sender."""
    origin: Origin = Origin()

    @property
    def group(self) -> tuple[object, ...]:
        """What letters of one class and one sender have in common."""
        return self.message_class, self.sender, self.identity, str(self.origin)


@dataclass
class StoredLetters:
    """What became of failures: each is a new letter, a repeated one, or counted in a summary."""

    counts: Counts = field(default_factory=Counts)
    """The new ones with the new summaries."""
    letters: list[NewLetter] = field(default_factory=list)
    """All of them but the repeated ones."""


def store_dead_letters(
    connection: Connection,
    failures: Sequence[RecordFailure],
    now: datetime,
    source_of: Callable[[Message], str],
    ration: Ration | None = None,
) -> StoredLetters:
    """Store failures in the caller's transaction, without a ration all of them.

    `source_of`: the broker, spool or file that a message came from, "" if unknown.

    Raises:
        LettersFull: letters of a publisher of the policy do not fit into its budget.
    """
    outcome = StoredLetters()
    if not failures:
        return outcome
    moment = stored_time(connection, now)
    letters = [
        _Letter.of(failure, moment, sender_of(failure.message, source_of(failure.message)))
        for failure in collapsed(failures)
    ]
    # In the same order everywhere, so that loaders of the same messages wait but do not deadlock.
    ordered = sorted(letters, key=lambda letter: letter.key)
    for portion in chunks(ordered, lambda letter: letter.size_bytes, MAX_LETTERS, MAX_BYTES):
        admitted: dict[tuple[Any, ...], _Letter] = {}
        for letter in portion:
            message, reason = letter.message, letter.values["reason"]
            if letter.key in admitted:
                outcome.counts.repeated_dead_letters += 1
            elif ration and not ration.admits(message, reason, letter.size_bytes):
                ration.summarise(
                    message, letter.values["message_id"], reason, letter.values["body"]
                )
                outcome.counts.summarised_dead_letters += 1
                outcome.letters.append(letter.new_letter)
            else:
                admitted[letter.key] = letter
        if ration and ration.too_much:
            raise LettersFull(ration.too_much, frozenset(ration.messages))
        stored = _insert(connection, [letter.values for letter in admitted.values()])
        for key, letter in admitted.items():
            reason = letter.values["reason"]
            if key in stored:
                outcome.counts.dead_letters[reason] += 1
                outcome.letters.append(letter.new_letter)
            else:
                outcome.counts.repeated_dead_letters += 1
                if ration:
                    ration.give_back(letter.message, reason, letter.size_bytes)
    summaries = ration.summaries.values() if ration else ()
    for summary in sorted(summaries, key=lambda summary: summary.message_id):
        if _store_summary(connection, summary, moment):
            outcome.counts.dead_letters[FLOOD] += 1
    return outcome


def collapsed(failures: Iterable[RecordFailure]) -> list[RecordFailure]:
    """The failures with one of the whole message instead of more than MOST_REFUSED of its records.

    Its error has the number of records and lists the first ones.
    """
    by_message: dict[int, list[RecordFailure]] = {}
    result: list[RecordFailure] = []
    for failure in failures:
        if failure.number == WHOLE:
            result.append(failure)
        else:
            by_message.setdefault(id(failure.message), []).append(failure)
    for refused in by_message.values():
        if sum(failure.records for failure in refused) <= MOST_REFUSED:
            result += refused
            continue
        counts: Counter[str] = Counter()
        for failure in refused:
            counts[failure.reason] += failure.records
        listed = ", ".join(f"{reason}: {count}" for reason, count in counts.most_common())
        lines = [f"{counts.total()} records ({listed}); the first {MOST_REFUSED} are:"]
        for failure in sorted(refused, key=lambda failure: failure.number)[:MOST_REFUSED]:
            error = " ".join(failure.text.split())[:LONGEST_TEXT]
            lines.append(f"record {failure.number}: {failure.reason}: {error}")
        reason = MIXED if len(counts) > 1 else next(iter(counts))
        message = refused[0].message
        result.append(RecordFailure(message, WHOLE, reason, "\n".join(lines), message.body))
    return result


def letters_of(connection: Connection, failures: Iterable[RecordFailure]) -> tuple[int, ...]:
    """The ids of the stored letters of failures, whichever call has stored them."""
    letters = (_Letter.of(failure, 0) for failure in failures)
    keys = (dict(zip(_KEY, letter.key, strict=True)) for letter in letters)
    return tuple(connection.execute(_ID, key).scalar_one() for key in keys)


def digest_of(body: bytes, headers: Mapping[str, str]) -> bytes:
    """SHA-256 of a body; of one that a source has cut, the text of its mark is a part.

    That text has the digest of all bytes, of which the body is the beginning.
    """
    digest = sha256(body)
    if REFUSED in headers:
        digest.update(b"\0" + headers.get(REFUSED_TEXT, "").encode("utf-8", "replace"))
    return digest.digest()


def key_id(message_id: str) -> str:
    """The id of a message in the table: its hash if it is too long, or looks like one of ours."""
    taken = EDITION.fullmatch(message_id) or message_id.startswith(SUMMARY)
    if taken or len(message_id) > LONGEST_ID:
        return f"sha256:{sha256(message_id.encode('utf-8', 'replace')).hexdigest()}"
    return storable(message_id)


class _Letter(NamedTuple):
    """The values of a letter by column, and its message."""

    message: Message
    sender: Sender
    values: Mapping[str, Any]

    @property
    def new_letter(self) -> NewLetter:
        values = self.values
        return NewLetter(
            values["reason"],
            values["message_class"],
            values["message_id"],
            values["error"],
            self.sender,
            known_identity(identity_of(self.message)),
            claimed_origin(self.message.headers),
        )

    @property
    def key(self) -> tuple[Any, ...]:
        return tuple(self.values[name] for name in _KEY)

    @property
    def size_bytes(self) -> int:
        return len(self.values["body"]) + len(self.values["headers"])

    @staticmethod
    def of(failure: RecordFailure, moment: datetime | int, sender: Sender = UNKNOWN) -> _Letter:
        message = failure.message
        values = {
            "message_id": key_id(message.message_id),
            "record_number": failure.number,
            "body_digest": digest_of(failure.body, message.headers),
            "message_class": storable(message.message_class or ""),
            "reason": failure.reason,
            "error": "\n".join(map(printable, storable(failure.text).split("\n"))),
            **_columns(sender, claimed_origin(message.headers)),
            "publisher": storable(identity_of(message)),
            "headers": json.dumps(dict(message.headers)),
            "body": failure.body,
            "received_at": moment,
            "changed_at": moment,
        }
        return _Letter(message, sender, values)


def _insert(
    connection: Connection, letters: Sequence[Mapping[str, Any]]
) -> dict[tuple[Any, ...], int]:
    """Insert letters; returns the ids, by key, of those that were not stored before.

    Their publishers are created if they are missing; a summary has none.
    """
    if not letters:
        return {}
    publishers: dict[str | None, int] = {}
    if identities := sorted({letter["publisher"] for letter in letters} - {None}):
        if connection.dialect.name == "postgresql":
            connection.execute(_MAKE_PUBLISHERS, {"identities": identities})
        else:
            connection.execute(_MAKE_PUBLISHER, [{"identity": name} for name in identities])
        found = connection.execute(_PUBLISHERS, {"identities": identities})
        publishers = {row.identity: row.publisher_id for row in found}
    rows = [{**letter, **stored_body(letter["body"])._asdict()} for letter in letters]
    for row in rows:
        row["publisher_id"] = publishers.get(row.pop("publisher"))
    stored = connection.execute(_INSERTS[connection.dialect.name], rows)
    return {(message_id, number, bytes(digest)): id_ for message_id, number, digest, id_ in stored}


def _store_summary(connection: Connection, summary: FloodSummary, moment: datetime | int) -> bool:
    """Add a summary to the stored one, if there is one; returns whether it is new."""
    values = {
        "message_id": summary.message_id,
        "record_number": WHOLE,
        "body_digest": digest_of(b"", {}),
        "message_class": "",
        "reason": FLOOD,
        "error": storable(str(summary)),
        **_columns(summary.sender, Origin()),
        "publisher": None,
        "headers": "{}",
        "body": b"",
        "received_at": moment,
        "changed_at": moment,
    }
    if _insert(connection, [values]):
        return True
    key = {name: values[name] for name in _KEY}
    stored = connection.execute(_SUMMARIES[connection.dialect.name], key).scalar_one()
    summary.add_stored(stored)
    error = storable(str(summary))
    connection.execute(_UPDATE_SUMMARY, {**key, "error": error, "changed_at": moment})
    return False


def _columns(sender: Sender, origin: Origin) -> dict[str, str | None]:
    claims = {f"claimed_{name}": value for name, value in origin._asdict().items()}
    values = {"broker": sender.source, "login": sender.user, **claims}
    return {name: storable(value) or None for name, value in values.items()}


def edit_dead_letter(
    engine: Engine,
    dead_letter_id: int,
    now: datetime,
    body: bytes | None = None,
    headers: Mapping[str, str | None] | None = None,
) -> int:
    """Replace an open letter by one with a new body, new headers, or both; returns the new id.

    In `headers`, None removes a header; without a class in them the letter keeps its class. The
    `recordCount` of the old body is removed when the body changes. The marks of a message that a
    source refused are removed, unless only the beginning of its body is known. The identity of the
    new letter is that of the operator who edits, whoever sent the old one.

    Raises:
        NoSuchDeadLetter
        EditRefused: the letter is not open or a summary, nothing would change, or the identity.
    """
    if IDENTITY in (headers or {}):
        text = f"dead letter {dead_letter_id}: {IDENTITY} can't be set: it names the editor"
        raise EditRefused(text)
    with writing(engine) as connection:
        locked = lock_dead_letters(connection, [dead_letter_id])
        old = single_letter(connection, dead_letter_id, locked)
        refuse_settled(old)
        changes = headers or {}
        merged = {**old.headers, **changes}
        is_new_body = body not in (None, old.body)
        if is_new_body and COUNT not in changes:
            merged.pop(COUNT, None)
        # The body of a large message is not whole, so it is not loaded as it is.
        if is_new_body or old.headers.get(REFUSED) != TOO_LARGE:
            merged = {k: value for k, value in merged.items() if k in changes or k not in MARKS}
        new_headers = {name: value for name, value in merged.items() if value is not None}
        new = Message(new_headers, old.body if body is None else body)
        if (new.headers, new.body) == (old.headers, old.body):
            raise EditRefused(f"dead letter {dead_letter_id}: nothing changed")
        new = with_identity(new, operator_identity(login_name()))
        moment = stored_time(connection, now)
        connection.execute(_DROP, {"id": dead_letter_id, "now": moment})
        values = {
            **{name: getattr(old.letter, name) for name in _KEPT},
            "message_id": edition_id(old.letter.message_id, dead_letter_id),
            "body_digest": digest_of(new.body, new.headers),
            "message_class": storable(new.headers.get(CLASS) or old.letter.message_class),
            "publisher": storable(identity_of(new)),
            "headers": json.dumps(dict(new.headers)),
            "body": new.body,
            "received_at": stored_time(connection, old.letter.received_at),
            "changed_at": moment,
        }
        [edited] = _insert(connection, [values]).values()
        arguments = {"id": str(dead_letter_id), "edited_as": str(edited)}
        record_operation(connection, "dead-letter edit", arguments)
    return edited


def refuse_settled(content: DeadLetterContent) -> None:
    """Raise EditRefused unless the letter is open and has a message or a record."""
    letter, edition = content.letter, content.edited_as
    if letter.reason == FLOOD:
        raise EditRefused(f"dead letter {letter.dead_letter_id} {SUMMARY_ONLY}")
    if letter.state == OPEN:
        return
    state = f"was replaced by dead letter {edition}" if edition else f"is {letter.state}"
    raise EditRefused(
        f"dead letter {letter.dead_letter_id} {state}; only open letters can be edited"
    )
