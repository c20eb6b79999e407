"""Storing dead letters, in bulk and within the limits on senders.

The key of a letter has a digest of its body, because senders choose message ids: other bytes under
a known id are another letter, and the same bytes are stored once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from sqlalchemy import Connection, LargeBinary, column, table, text
from sqlalchemy.dialects import postgresql, sqlite

from sam_pipeline.schema.chunks import chunks
from sam_pipeline.schema.identity.identity import identity_of, known_identity
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.decode import MOST_REFUSED, WHOLE
from sam_pipeline.schema.messages.message import Message, Origin, claimed_origin
from sam_pipeline.schema.messages.refused import REFUSED, REFUSED_TEXT
from sam_pipeline.schema.program.wording import printable
from sam_pipeline.sql.loading.batch import FLOOD, MIXED, RecordFailure
from sam_pipeline.sql.loading.letters.body import stored_body
from sam_pipeline.sql.loading.letters.dead_letter import EDITION, storable, stored_time
from sam_pipeline.sql.loading.letters.quota import SUMMARY, FloodSummary, Ration, Sender, sender_of
from sam_pipeline.sql.loading.publishers import publisher_ids

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
_INSERTS = {
    name: insert(_LETTER)
    .on_conflict_do_nothing(index_elements=_KEY)
    .returning(*(_LETTER.c[name] for name in _KEY))
    for name, insert in (("postgresql", postgresql.insert), ("sqlite", sqlite.insert))
}
_SUMMARY = """
    SELECT error FROM dead_letter
    WHERE message_id = :message_id AND record_number = :record_number AND body_digest = :body_digest
"""
_SUMMARIES = {"sqlite": text(_SUMMARY), "postgresql": text(f"{_SUMMARY} FOR UPDATE")}
_ID = text("""
    SELECT dead_letter_id FROM dead_letter
    WHERE message_id = :message_id AND record_number = :record_number AND body_digest = :body_digest
""")
# It is open again if someone has dropped it meanwhile.
_UPDATE_SUMMARY = text("""
    UPDATE dead_letter SET error = :error, state = 'open', changed_at = :changed_at
    WHERE message_id = :message_id AND record_number = :record_number AND body_digest = :body_digest
""")


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
        if ration:
            ration.require_room()
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
    ids = []
    for failure in failures:
        letter = _Letter.of(failure, 0)
        key = {name: letter.values[name] for name in _KEY}
        ids.append(connection.execute(_ID, key).scalar_one())
    return tuple(ids)


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


def insert_letter(connection: Connection, values: Mapping[str, Any]) -> int:
    """Insert one letter whose key is new; returns its id."""
    insert = _INSERTS[connection.dialect.name].returning(_LETTER.c.dead_letter_id)
    [row] = _rows(connection, [values])
    return int(connection.execute(insert, row).one().dead_letter_id)


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


def _insert(connection: Connection, letters: list[Mapping[str, Any]]) -> set[tuple[Any, ...]]:
    """Insert letters; returns the keys of those that were not stored before."""
    if not letters:
        return set()
    values = _rows(connection, letters)
    rows = connection.execute(_INSERTS[connection.dialect.name], values)
    return {(message_id, number, bytes(digest)) for message_id, number, digest in rows}


def _rows(connection: Connection, letters: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The values of letters by column of the table; a summary has no publisher."""
    ids = publisher_ids(connection, {letter["publisher"] for letter in letters} - {None})
    rows = [{**letter, **stored_body(letter["body"])._asdict()} for letter in letters]
    for row in rows:
        row["publisher_id"] = ids.get(row.pop("publisher"))
    return rows


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
